import argparse

import pytest

from hypersphere.cli.embedder_options import add_license_option
from hypersphere.cli.main import main


@pytest.mark.parametrize("option", ["--accept-licence", "--accept-license"])
def test_both_spellings_are_accepted(option):
    parser = argparse.ArgumentParser()
    add_license_option(parser)
    assert parser.parse_args([option, "w600k-mbf"]).accept_licence == "w600k-mbf"
    assert parser.parse_args([]).accept_licence is None


@pytest.mark.parametrize("action", ["enrol", "identify", "verify", "calibrate", "reject", "audit", "migrate"])
def test_all_actions_that_load_an_embedder_have_it(action, capsys):
    with pytest.raises(SystemExit):
        main(["gallery", action, "--help"])
    assert "--accept-licence" in capsys.readouterr().out
