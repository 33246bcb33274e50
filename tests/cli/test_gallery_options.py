import argparse

from hypersphere.cli.gallery_options import add_key_option


def test_the_key_of_a_gallery_is_a_file():
    parser = argparse.ArgumentParser()
    add_key_option(parser)
    assert parser.parse_args(["--key-file", "gallery.key"]).key_file == "gallery.key"
    assert parser.parse_args([]).key_file is None
