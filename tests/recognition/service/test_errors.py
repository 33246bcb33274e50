import json

from hypersphere.recognition.service.errors import RequestError, error_response


def test_a_refusal_is_the_envelope_with_its_headers():
    answer = RequestError(429, "too_often", "too many requests", {"Retry-After": "3"}).response("abc")
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "3")
    assert json.loads(answer.body) == {
        "error": {"code": "too_often", "message": "too many requests", "request_id": "abc"}
    }


def test_markup_stays_inside_json():
    answer = error_response(404, "not_found", "<script>", "id")
    assert answer.headers["content-type"] == "application/json"
    assert json.loads(answer.body)["error"]["message"] == "<script>"
