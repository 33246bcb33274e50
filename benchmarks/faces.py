"""Measure the pretrained face model on LFW: ten folds, thresholds for a gallery, time per face compared with OpenCV and onnxruntime.

Features are computed once by ``_lfw_faces.py`` and kept outside the repository. Parts: ``--part folds thresholds time``.

The central face of each picture counts, because LFW puts the named person there. A picture without a face has no score
and counts as a rejected pair.
"""

import argparse
import json
from typing import Any

import _harness
import numpy as np
import torch
from _lfw_faces import find_paired_pictures, load_faces

from hypersphere import load
from hypersphere.data.faces import TEMPLATE, align_face, detect_faces
from hypersphere.data.lfw import LFW
from hypersphere.evaluation import choose_threshold, verification, wilson
from hypersphere.geometry import cosine, faster_convolutions
from hypersphere.models import fetch_model, load_network

VENDOR_THRESHOLD = 0.363  # cosine, from the documentation of OpenCV's face recognizer
ENROLLED_FOLDS = (0, 1, 2, 3)
PARTS = ("folds", "thresholds", "time")
NOTES = (
    "One face in a picture of 640×640 pixels. What bounds the ratios that miss the goal: PyTorch's eager convolutions "
    "with one channel per group, which are most of the detector, are slower than those of onnxruntime. Alignment samples the "
    "picture with `grid_sample` in floating point, which alone takes longer than OpenCV's affine warp of 8-bit pixels. It is "
    "a hundredth of the time of a face."
)


def compute_features(
    faces: LFW, indices: torch.Tensor, name: str = "sface", mirror: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return features (n, d) of the central faces, and whether a face was found (n,); only rows in ``indices`` are filled."""
    every = load_faces(faces, name, indices, mirror=mirror)
    found = torch.zeros(len(faces.data), dtype=torch.bool)
    found[indices] = every.central[indices] >= 0
    features = torch.zeros(len(faces.data), every.features.shape[1])
    features[found] = every.features[every.central[found]]
    return features, found


def measure_folds(faces: LFW, indices: torch.Tensor, args: argparse.Namespace) -> None:
    """Measure view 2: accuracy of each fold with the threshold of the other nine, and EER of all pairs."""
    columns, missing = [], 0
    for name, mirror in (("sface", False), ("sface", True), ("dlib-resnet", False)):
        features, found = compute_features(faces, indices, name, mirror)
        columns.append(_format_folds(faces, features, found))
        missing = int((~found[indices]).sum())
    rows: list[list[object]] = [[name, *(column[name] for column in columns)] for name in columns[0]]
    notes = (
        f"View 2 of LFW, deep-funneled pictures cropped to 128×128. The detector found no face in {missing} of the "
        f"pictures. The publishers do not document all training data, so people of LFW may have been in it."
    )
    how = "cosine of features; accuracy with the threshold that is best on the other nine folds."
    header = ["measure", "sface", "sface, with the features of the mirror image", "dlib-resnet"]
    _harness.write_report("faces_lfw", "Pretrained face models on the ten folds of LFW", header, rows, args, notes, how)


def _format_folds(faces: LFW, features: torch.Tensor, found: torch.Tensor) -> dict[str, str]:
    """Return the figures of view 2 by name."""
    pairs = faces.pairs()
    scores = cosine(features[pairs.first], features[pairs.second])
    scores[~(found[pairs.first] & found[pairs.second])] = -1.0
    report = verification(scores, pairs.same, fold=pairs.fold)
    first = pairs.fold < 4  # the folds that the goal was derived from
    figures = {
        "accuracy, mean of ten folds (goal ≥ 99.2 %)": report.accuracy,
        "EER of 6,000 pairs (goal ≤ 0.7 %)": report.eer,
        "EER of folds 0–3": verification(scores[first], pairs.same[first]).eer,
        **{f"TAR at FAR {far:g}": report.tar(far) for far in (1e-2, 1e-3)},
    }
    folds = {f"fold {i}": f"{value:.2%}" for i, value in enumerate(report.accuracies.tolist())}
    return folds | {name: f"{value:.2%} [{value.low:.2%}, {value.high:.2%}]" for name, value in figures.items()}


def measure_thresholds(faces: LFW, features: torch.Tensor, found: torch.Tensor, args: argparse.Namespace) -> None:
    """Measure three ways to choose a threshold, with strangers and a gallery."""
    fold = faces.people()
    labels = faces.labels
    usable = found & torch.isin(fold, torch.tensor(ENROLLED_FOLDS))
    counts = torch.bincount(labels[usable], minlength=len(faces.classes))
    first = _first_pictures(labels, usable)
    several = [row for row in first if int(counts[labels[row]]) > 1]
    single = [row for row in first if int(counts[labels[row]]) == 1]
    gallery, calibration, strangers = torch.tensor(several), torch.tensor(single[::2]), torch.tensor(single[1::2])
    probes = usable & torch.isin(labels, labels[gallery])
    probes[gallery] = False
    rows = probes.nonzero().flatten()
    templates = torch.nn.functional.normalize(features[gallery], dim=1)

    def compare(index: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.normalize(features[index], dim=1) @ templates.T

    others = ~torch.isin(fold, torch.tensor(ENROLLED_FOLDS))
    pairs = faces.pairs()
    clean = others[pairs.first] & others[pairs.second] & found[pairs.first] & found[pairs.second] & ~pairs.same
    impostors = cosine(features[pairs.first[clean]], features[pairs.second[clean]])
    chosen = {
        f"vendor's documentation: {VENDOR_THRESHOLD}": VENDOR_THRESHOLD,
        "FAR 1e-3 for pairs, from other people": choose_threshold(impostors, far=1e-3).threshold,
        "FPIR 1 %, from other strangers (95 % confidence)": choose_threshold(
            compare(calibration).amax(1), fpir=0.01, people=labels[calibration]
        ).threshold,
        "FPIR 1 %, measured share of other strangers": float(compare(calibration).amax(1).quantile(0.99)),
    }
    strange, (best, who) = compare(strangers).amax(1), compare(rows).max(1)
    right = labels[gallery][who] == labels[rows]
    table: list[list[object]] = []
    for name, threshold in chosen.items():
        false, known = (strange >= threshold), right & (best >= threshold)
        people = labels[rows].unique()
        per_person = torch.stack([known[labels[rows] == person].double().mean() for person in people])
        accepted = wilson(int(false.sum()), len(false))
        spread = 1.96 * float(per_person.std()) / len(people) ** 0.5
        rate = f"{float(known.double().mean()):.1%} (mean of people {float(per_person.mean()):.1%} ± {spread:.1%})"
        table.append([name, f"{threshold:.3f}", f"{accepted:.2%} [{accepted.low:.2%}, {accepted.high:.2%}]", rate])
    notes = (
        f"Pictures are those of the pairs. {len(gallery)} people of folds 0–3 with several of them are enrolled by their "
        f"first picture. {len(strangers)} other people with one picture are strangers; {len(calibration)} more choose the threshold. "
        f"{len(rows)} further pictures of the enrolled are probes. Pairs for FAR come from folds 4–9. Intervals are 95 %."
    )
    header = ["threshold from", "cosine", "strangers accepted", "members recognized"]
    title = f"Thresholds for a gallery of {len(gallery)} people (sface, LFW)"
    _harness.write_report("faces_thresholds", title, header, table, args, notes, "exact search by cosine.")


def _first_pictures(labels: torch.Tensor, usable: torch.Tensor) -> list[int]:
    seen: set[int] = set()
    found = []
    for row in usable.nonzero().flatten().tolist():
        if int(labels[row]) not in seen:
            seen.add(int(labels[row]))
            found.append(row)
    return found


def measure_time(faces: LFW, args: argparse.Namespace) -> None:
    """Measure detection, alignment and embedding of one face relative to OpenCV and onnxruntime, in one interleaved run."""
    import cv2
    import onnxruntime

    cv2.setNumThreads(args.threads)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = args.threads, 3
    runtimes = {
        name: onnxruntime.InferenceSession(str(fetch_model(name)), options, providers=["CPUExecutionProvider"])
        for name in ("sface", "yunet")
    }
    embedder = load("sface")
    detector: Any = load_network("yunet")
    small = faces.data[0]
    large = torch.nn.functional.interpolate(small[None].float(), (640, 640), mode="bilinear")[0].round().byte()
    theirs = cv2.FaceDetectorYN.create(str(fetch_model("yunet")), "", (640, 640), 0.6, 0.3)
    recognizer = cv2.FaceRecognizerSF.create(str(fetch_model("sface")), "")
    bgr = np.ascontiguousarray(large.permute(1, 2, 0).numpy()[:, :, ::-1])
    face = detect_faces(large)[0]
    row = theirs.detect(bgr)[1][0]
    aligned = align_face(large, face, TEMPLATE)[None].float()
    detector = detector.to(memory_format=torch.channels_last)  # as in detect_faces
    image = large[None].flip(1).float().contiguous(memory_format=torch.channels_last)
    crop = recognizer.alignCrop(bgr, row)

    def embed() -> object:
        with torch.no_grad():
            return embedder.of_inputs(aligned)

    def run_detector() -> object:
        with torch.no_grad(), faster_convolutions():
            return detector(image)

    work = {
        "detect": lambda: detect_faces(large),
        "detect, OpenCV": lambda: theirs.detect(bgr),
        "detector network": run_detector,
        "detector network, onnxruntime": lambda: runtimes["yunet"].run(
            None, {"input": np.ascontiguousarray(image.numpy())}
        ),
        "align": lambda: align_face(large, face, TEMPLATE),
        "align, OpenCV": lambda: recognizer.alignCrop(bgr, row),
        "embed": embed,
        "embed, onnxruntime": lambda: runtimes["sface"].run(None, {"data": aligned.numpy()}),
        "embed, OpenCV": lambda: recognizer.feature(crop),
    }
    if runtimes["yunet"].get_inputs()[0].shape[2:] != [640, 640]:
        del work["detector network, onnxruntime"]
    seconds = _harness.time_interleaved(work, args.rounds, warmup=2, min_seconds=0.05)
    ratios = [
        ("detection in 640×640", "detect", "detect, OpenCV"),
        ("network of the detector, 640×640", "detector network", "detector network, onnxruntime"),
        ("alignment", "align", "align, OpenCV"),
        ("embedding", "embed", "embed, onnxruntime"),
        ("embedding", "embed", "embed, OpenCV"),
    ]
    rows: list[list[object]] = []
    for name, mine, other in ratios:
        if other in seconds:
            label = other.partition(", ")[2]
            rows.append(
                [
                    name,
                    label,
                    f"{seconds[mine] * 1e3:.2f}",
                    f"{seconds[other] * 1e3:.2f}",
                    seconds[mine] / seconds[other],
                ]
            )
    total = [sum(seconds[part] for part in ("detect", "align", "embed"))]
    total.append(seconds["detect, OpenCV"] + seconds["align, OpenCV"] + seconds["embed, onnxruntime"])
    rows.append(
        ["one face, all three", "OpenCV and onnxruntime", *(f"{t * 1e3:.2f}" for t in total), total[0] / total[1]]
    )
    header = ["work", "compared with", "ms", "their ms", "ratio (goal ≤ 1.2)"]
    _harness.write_report("faces_time", "CPU time per face", header, rows, args, NOTES)


def main() -> None:
    parser = _harness.make_parser(__doc__)
    parser.add_argument("--part", nargs="+", choices=PARTS, default=list(PARTS))
    parser.set_defaults(threads=1, rounds=9)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    faces = LFW()
    if set(args.part) & {"folds", "thresholds"}:
        indices = find_paired_pictures(faces)
        features, found = compute_features(faces, indices)
        print(json.dumps({"pictures": len(indices), "without a face": int((~found[indices]).sum())}))
        if "folds" in args.part:
            measure_folds(faces, indices, args)
        if "thresholds" in args.part:
            measure_thresholds(faces, features, found, args)
    if "time" in args.part:
        measure_time(faces, args)


if __name__ == "__main__":
    main()
