"""Small run folders with the files that a page reads, written without training."""

import json

import torch

from hypersphere.evaluation import Evidence

HOSTILE = (
    "</script><script>window.pwned=1</script>",
    "<img src=x onerror=window.pwned=1>",
    "<!-- not a comment",
    "a\u2028b & 'c' \"d\"",
    "%{x} $\\alpha$ <b>bold</b>",
)


def evidence(classes=("ant", "bee", "cat", "dog"), each=10, dim=3, seed=0, images=True, spread=0.25):
    """Return clusters around random directions, with one sample inside the cluster of another class."""
    generator = torch.Generator().manual_seed(seed)
    middles = torch.randn(len(classes), dim, generator=generator)
    labels = torch.arange(len(classes) * each) // each
    features = middles[labels] + spread * torch.randn(len(labels), dim, generator=generator)
    features[0] = middles[-1]
    pictures = torch.randint(0, 255, (len(labels), 8, 8, 1), generator=torch.Generator().manual_seed(9))
    return Evidence(features, labels, list(classes), 2 * len(labels), pictures.to(torch.uint8) if images else None)


def write_run(folder, *, head="ArcFace", seed=0, kept=None, choices=(), steps=20, weights=None):
    """Write a run folder like the trainer's, with curves that depend on the seed."""
    folder.mkdir(parents=True)

    def put(name, value):
        (folder / name).write_text(json.dumps(value))

    put("config.json", {"steps": steps, "head": {"call": head, "m": 0.5 - 0.1 * seed}, "data": {"name": "Digits"}})
    put("run.json", {"format": "hypersphere-run/1", "files": []})
    put("metrics.json", {"steps": steps, "eer": 4.0 + seed, "tar": 80.0, "intra_angle": 0.2, "energy/conv": 0.5})
    put("environment.json", {"hypersphere": "0.1.0", "python": "3.11", "packages": {"torch": "2.6.0+cpu"}})
    if choices:
        put("choices.json", {"choices": list(choices)})
    rows = []
    for step in range(steps + 1):
        rows.append({"step": step, "loss": 3.0 / (step + 1 + seed), "lr": 0.1, "lambda": 10.0 / (step + 1)})
        rows.append(
            {"step": step, "eer": 50.0 / (step + 1) + seed, "tar": 4.0 * step, "energy/conv": 0.6 - 0.001 * step}
        )
    (folder / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    events = [("start", 0, "2026-01-01T00:00:00.000+00:00"), ("end", steps, "2026-01-01T00:01:15.000+00:00")]
    (folder / "events.jsonl").write_text(
        "".join(json.dumps({"event": e, "step": s, "time": t}) + "\n" for e, s, t in events)
    )
    from safetensors.torch import save_file

    conv = torch.randn(6, 3, 3, 3, generator=torch.Generator().manual_seed(seed))
    save_file({"conv.weight": conv, **(weights or {})}, folder / "model.safetensors")
    (evidence() if kept is None else kept).save(folder / "evidence.safetensors")
    return folder
