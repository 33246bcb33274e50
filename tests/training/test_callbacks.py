from hypersphere.training import Callback


def test_a_callback_may_listen_to_nothing():
    callback = Callback()
    for method in (callback.on_start, callback.on_step):
        method(None)
    for method in (callback.on_log, callback.on_evaluate, callback.on_end):
        method(None, {})
    assert callback.state_dict() == {}
    callback.load_state_dict({})
