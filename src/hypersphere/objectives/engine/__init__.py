r"""Ways to compute a loss over classes: the same number and the same gradient, at different costs.

Every way is a :class:`LossMethod`: it takes a :class:`LossProblem` and returns the loss of each sample.
:func:`compute_loss` checks the arguments, chooses a way by this table and reduces the losses.

===========================  =======================================  ==========================================
situation                    way                                      why
===========================  =======================================  ==========================================
``chunk="auto"``, at most    ``few_classes``: all products in one     0.84 ms for 10 classes and 5.8 ms for 1,000,
2^18 logits                  matrix product, derivative by hand       where ``dense`` takes 2.5 and 14.5 ms and one
                                                                      chunk 3.6 and 8.5 ms
``chunk="auto"``, more       ``chunked``: a block of classes at a     neither the N×C logits nor a normalized copy
logits, or ``chunk=n``       time, derivative by hand                 of the weight is built
``chunk=None``; compiling;   ``dense``: all logits at once, plain     differentiable any number of times, visible to
soft targets; vmap and       autograd                                 the compiler and to function transforms
``torch.func`` up to 2^16
logits
a vector of length 0, or     ``dense`` up to 2^16 logits, ``chunked`` ``few_classes`` divides by lengths and needs
outside of [1e-4, 1e15]      above                                    them in the usual range
sharded: other processes     ``chunked`` on the classes of this       only tensors of the batch's length are
hold other classes           process                                  communicated
sampled: a step uses some    ``chunked`` on the classes of this step  the gradient has the rows of these classes only
of the classes
===========================  =======================================  ==========================================

Times: forward and backward on one CPU thread, batch 128, 512 features, float32 (``benchmarks/heads.py``). A head of ten
classes is limited by the number of calls, not by arithmetic, so ``few_classes`` saves calls.

Sharded and sampled heads are not further ways: both give the rows of a :class:`ClassSubset` to ``chunked``, which asks the
subset where a label is and sums over processes. ``problem`` holds what all ways share: the checks, the scores with their
margins, and the choice.
"""

from .problem import (
    Chunk,
    ClassSubset,
    GatheredBatch,
    LossMethod,
    LossProblem,
    Processes,
    Scale,
    ScoreFunction,
    Targets,
    compute_loss,
)

__all__ = [
    "Chunk",
    "ClassSubset",
    "GatheredBatch",
    "LossMethod",
    "LossProblem",
    "Processes",
    "Scale",
    "ScoreFunction",
    "Targets",
    "compute_loss",
]
