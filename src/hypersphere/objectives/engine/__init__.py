r"""Methods to compute a loss over classes. All give the same loss and the same gradient, at different costs.

Each method is a :class:`LossMethod`: it takes a :class:`LossProblem` and returns the loss of each sample.
:func:`compute_loss` checks the arguments, chooses a method by this table and reduces the losses.

==============================  ==========================================  ============================================
situation                       method                                      reason
==============================  ==========================================  ============================================
``chunk="auto"``, at most       ``few_classes``: one matrix product,        0.5 ms for 10 classes and 3.6 ms for 1,000;
2^18 logits                     hand-written backward pass                  ``dense`` takes 2.8 and 15 ms, ``chunked``
                                                                            with one chunk 3.5 and 6.6 ms
``chunk="auto"``, more than     ``chunked``: a block of classes at a time,  never builds the N×C logits or a normalized
2^18 logits; or ``chunk=n``     hand-written backward pass                  copy of the weight
``chunk=None``; compiling;      ``dense``: all logits at once, plain        can be differentiated any number of times,
soft targets; vmap and          autograd                                    compiled and transformed
``torch.func`` up to 2^16
logits
a vector of length 0, or        ``dense`` up to 2^16 logits, otherwise      ``few_classes`` divides by lengths, which
outside of [1e-4, 1e15];        ``chunked``                                 must be in the usual range, and has no products
``matmul_dtype``                                                            in lower precision
sharded: other processes hold   ``chunked`` on the classes of this process  communicates only tensors of the batch's
other classes                                                               length
sampled: each step uses some    ``chunked`` on the classes of this step     the gradient contains only the rows of these
of the classes                                                              classes
==============================  ==========================================  ============================================

Times: forward and backward pass of ArcFace on one CPU thread, batch 128, 512 features, float32, as in
``benchmarks/heads.py``. The number of calls, not arithmetic, limits a head of ten classes, so ``few_classes`` saves calls.

``dense`` is the definition: every other method must agree with it. Sharded and sampled heads use ``chunked`` with the rows
of a :class:`ClassSubset`, which maps labels to rows and sums over processes. Start with ``problem`` (checks, the data
passed to a method, and the choice of the method), continue with ``scores`` (logits with margins) and ``dense``, then read
``few_classes`` and ``chunked``.
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
