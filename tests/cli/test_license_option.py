import argparse

import pytest

from hypersphere.cli.license_option import add_license_option


@pytest.mark.parametrize("option", ["--accept-licence", "--accept-license"])
def test_both_spellings_are_accepted(option):
    parser = argparse.ArgumentParser()
    add_license_option(parser)
    assert parser.parse_args([option, "w600k-mbf"]).accept_licence == "w600k-mbf"
    assert parser.parse_args([]).accept_licence is None
