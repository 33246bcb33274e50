"""Train on a folder of pictures, enroll people in a gallery and identify them. Needs the extra `train`."""

import pathlib
import tempfile

import numpy as np
from PIL import Image

import hypersphere as hs
from hypersphere.recognition import Gallery

rng = np.random.default_rng(0)


def draw(folder: pathlib.Path, people: int, pictures: int) -> None:
    """Write one folder per person with pictures of 24×24 pixels: the pattern of the person plus noise."""
    for person in range(people):
        pattern = np.kron(rng.uniform(40, 200, (4, 4)), np.ones((6, 6)))
        (folder / f"person {person:02}").mkdir(parents=True)
        for number in range(pictures):
            picture = np.clip(pattern + rng.normal(0, 20, pattern.shape), 0, 255).astype(np.uint8)
            Image.fromarray(picture).save(folder / f"person {person:02}" / f"{number}.png")


with tempfile.TemporaryDirectory() as folder:
    pictures = pathlib.Path(folder, "pictures")
    draw(pictures, people=10, pictures=6)
    run = hs.fit(
        pictures, pathlib.Path(folder, "run"), settings={"backbone.width": 0.1, "threads": 1}, steps=20, pictures=False
    )
    print(run.report)  # on people who are not in the training set
    with Gallery(pathlib.Path(folder, "known.db"), run.embedder) as gallery:
        for person in sorted(pictures.iterdir())[:5]:
            gallery.enrol(person.name, run.embedder(sorted(person.iterdir())[:3]))
        for probe in (pictures / "person 03" / "5.png", pictures / "person 08" / "5.png"):
            best = gallery.identify(run.embedder(probe), threshold=0.9)[0].best
            print(f"{probe.parent.name}: {best.identity if best.accepted else 'unknown'}, cosine {best.score:.2f}")
