"""Measure CPU time and memory of a step of orthogonal fine-tuning, compared with peft's OFT, BOFT, HRA and LoRA.

python benchmarks/orthogonal_finetune.py --threads 1            # some minutes on two cores
python benchmarks/orthogonal_finetune.py --threads 1 --record   # also write the dated reports
python benchmarks/orthogonal_finetune.py --threads 1 --oft --record   # only OFT, the floor and LoRA, in separate reports
"""

import copy
import multiprocessing
import warnings
from collections.abc import Callable

import peft
import torch
import transformers
from _harness import make_parser, measure_peak, time_interleaved, write_report
from torch import Tensor, nn

from hypersphere import orthogonal

OFT = ("nothing but the positions", "peft OFT, block 32", "OFT, block 32", "peft LoRA, rank 8")
TARGETS = r".*(query|key|value|dense|q_proj|k_proj|v_proj|o_proj|fc1|fc2)$"


def main() -> None:
    p = make_parser(__doc__)
    p.add_argument("--models", nargs="+", choices=["vit", "bert"], default=["vit", "bert"])
    p.add_argument("--layers", type=int, default=2)
    p.add_argument("--batch", type=int, default=4)
    p.add_argument("--oft", action="store_true", help="only the floor, OFT, peft's OFT and its LoRA")
    args = p.parse_args()
    torch.set_num_threads(args.threads)
    warnings.simplefilter("ignore")  # of the other libraries
    for name in args.models:
        _report_model(name, args)


def _report_model(name: str, args) -> None:
    torch.manual_seed(0)
    model, inputs, size = _make_model(name, args)
    variants = {key: make for key, make in _list_variants().items() if not args.oft or key in OFT}
    steps = {key: _TrainingStep(make(copy.deepcopy(model)), inputs) for key, make in variants.items()}
    counts = {key: step.parameters for key, step in steps.items()}
    times = time_interleaved(steps, rounds=1, warmup=0)
    quick = {key: step for key, step in steps.items() if times[key] < 4 * min(times.values())}
    more = time_interleaved(quick, rounds=args.rounds, warmup=0)  # slow methods are measured once
    times = {key: min(value, more.get(key, value)) for key, value in times.items()}
    peaks = {key: _measure_forked_peak(steps[key]) for key in steps}
    floor = times["peft OFT, block 32"]
    rows = [[key, counts[key], times[key], times[key] / floor, round(peaks[key])] for key in steps]
    notes = (
        f"{size}. Forward, backward and a step of AdamW; every linear layer of the encoder is tuned, everything else is frozen. "
        "The first row is the floor: the frozen model, with gradients back through every linear layer, to its positions. "
        "The ratio is to peft's OFT in the same run; memory is what a step adds to a process that holds the model. "
        "Methods that take more than four times the floor are measured once. "
        "Without its CUDA extension peft's BOFT has one butterfly factor, which is OFT; ours has it for comparison and the default two."
    )
    header = ["tuning", "parameters", "s per step", "of peft's OFT", "MiB"]
    title = f"Fine-tuning a {'ViT-base' if name == 'vit' else 'BERT-base'} with {args.layers} of its 12 layers"
    write_report(f"orthogonal_finetune_{name}{'_oft' * args.oft}", title, header, rows, args, notes)


def _make_model(name: str, args) -> tuple[nn.Module, Tensor, str]:
    if name == "vit":
        model = transformers.ViTModel(transformers.ViTConfig(num_hidden_layers=args.layers), add_pooling_layer=False)
        return model, torch.randn(args.batch, 3, 224, 224), f"{args.batch} images of 197 patches"
    config = transformers.BertConfig(num_hidden_layers=args.layers)
    model = transformers.BertModel(config, add_pooling_layer=False)
    return model, torch.randint(1000, (args.batch, 128)), f"{args.batch} texts of 128 tokens"


def _list_variants() -> dict[str, Callable[[nn.Module], nn.Module]]:
    def ours(method: str, **options) -> Callable[[nn.Module], nn.Module]:
        return lambda model: orthogonal.finetune(
            model, method, only=[lambda name, m: isinstance(m, nn.Linear)], classifier=False, **options
        )

    def theirs(config: Callable[..., peft.PeftConfig], **options) -> Callable[[nn.Module], nn.Module]:
        return lambda model: peft.get_peft_model(model, config(target_modules=TARGETS, **options))

    def frozen(model: nn.Module) -> nn.Module:
        """Return the floor: nothing is tuned, but gradients flow back through every layer, as rotations of the inputs need."""
        model.requires_grad_(False)
        embeddings = model.embeddings.position_embeddings
        (embeddings if isinstance(embeddings, nn.Parameter) else embeddings.weight).requires_grad_()
        return model

    return {
        "nothing but the positions": frozen,
        "peft OFT, block 32": theirs(peft.OFTConfig, r=0, oft_block_size=32),
        "OFT, block 32": ours("oft"),
        "OFT, block 32, 4 terms": ours("oft", terms=4),
        "COFT, block 32": ours("coft"),
        "peft BOFT, block 32, 1 factor": theirs(peft.BOFTConfig, boft_block_size=32),
        "BOFT, block 32, 1 factor": ours("boft", factors=1),
        "BOFT, block 32, 2 factors": ours("boft"),
        "peft HRA, rank 8": theirs(peft.HRAConfig, r=8),
        "HRA, rank 8": ours("hra"),
        "POET, block 32": ours("poet"),
        "peft LoRA, rank 8": theirs(peft.LoraConfig, r=8),
    }


class _TrainingStep:
    """A callable training step."""

    def __init__(self, model: nn.Module, inputs: Tensor):
        self.model, self.inputs = model.train(), inputs
        learned = [p for p in model.parameters() if p.requires_grad]
        self.parameters = sum(p.numel() for p in learned)
        self.optimizer = torch.optim.AdamW(learned, lr=1e-4)

    def __call__(self) -> None:
        self.optimizer.zero_grad()
        self.model(self.inputs).last_hidden_state.square().mean().backward()
        self.optimizer.step()


def _measure_forked_peak(step: _TrainingStep) -> float:
    """Return the extra memory of a step, measured in a child process without memory of other steps."""
    receive, send = multiprocessing.Pipe(duplex=False)
    child = multiprocessing.get_context("fork").Process(target=lambda: send.send(measure_peak(step)))
    child.start()
    peak = receive.recv()
    child.join()
    return peak


if __name__ == "__main__":
    main()
