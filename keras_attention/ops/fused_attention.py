"""Attention in one kernel that never writes its weights to memory, where the backend has one."""

from typing import Any

import keras
from keras import ops

# On a CPU PyTorch's fused backward pass is slower than products and softmax while the scores of a
# head, T x S, stay in the cache.
SMALLEST_FUSED_SCORES = 512 * 512


def fused_attention(
    query: Any, key: Any, value: Any, mask: Any = None, scale: float = 1.0, use: bool | None = None
) -> Any:
    """`dot_product_attention` without its weights, by the backend's flash attention.

    Masks are kept, whatever the kernel does with a row that may attend to nothing: it gives zeros.
    PyTorch has fused attention on every device, JAX (cuDNN, in half precision) on GPUs; TensorFlow
    has none.

    Args:
        query: Tensor of shape `(B, T, N, K)`.
        key: Tensor of shape `(B, S, N, K)`.
        value: Tensor of shape `(B, S, N, V)`.
        mask: Boolean tensor broadcastable to `(B, N, T, S)`; True = may attend.
        scale: Factor of the products, `K ** -0.5` in the paper.
        use: True for always, False for never, None for where it is faster.

    Returns:
        The outputs `(B, T, N, V)`, or None where the fused kernel is not to be used.

    Raises:
        ValueError: `use=True` on a backend without fused attention.
    """
    if use is False:
        return None
    backend = keras.backend.backend()
    available = {"jax": _jax_has_kernel, "torch": lambda: True}.get(backend, lambda: False)()
    if not available:
        if use:
            raise ValueError(
                "flash_attention=True needs a fused attention kernel, which PyTorch has everywhere and "
                f"JAX on GPUs; the backend is {backend!r} on this device. Leave flash_attention=None: "
                "it is used where there is one."
            )
        return None
    if not use and backend == "torch" and not _is_faster_on_torch(query, key):
        return None
    sees_any = None
    if mask is not None:
        mask = ops.reshape(mask, (1,) * (4 - len(mask.shape)) + tuple(ops.shape(mask)))
        # Kernels differ on rows that may attend to nothing: let them see all, and drop what they saw.
        sees_any = ops.any(mask, axis=-1, keepdims=True)
        mask = ops.logical_or(mask, ops.logical_not(sees_any))
    outputs = (_torch if backend == "torch" else _jax)(query, key, value, mask, scale)
    if sees_any is not None:
        sees_any = ops.transpose(sees_any, (0, 2, 1, 3))
        outputs = ops.where(sees_any, outputs, ops.zeros((), outputs.dtype))
    return outputs


def _jax_has_kernel() -> bool:
    import jax

    return jax.default_backend() == "gpu"


def _jax(query, key, value, mask, scale):
    # Keras asks cuDNN whether it takes these shapes, and leaves the work to XLA where not.
    return ops.dot_product_attention(query, key, value, mask=mask, scale=scale)


def _is_faster_on_torch(query, key) -> bool:
    import torch

    if query.device.type != "cpu":
        return True
    is_long = query.shape[1] * key.shape[1] >= SMALLEST_FUSED_SCORES
    return is_long or not torch.is_grad_enabled()


def _torch(query, key, value, mask, scale):
    import torch

    query, key, value = (tensor.transpose(1, 2) for tensor in (query, key, value))
    outputs = torch.nn.functional.scaled_dot_product_attention(
        query, key, value, attn_mask=mask, scale=scale
    )
    return outputs.transpose(1, 2)
