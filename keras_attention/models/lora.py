"""LoRA: beside frozen weights small matrices are trained, which are saved alone or merged."""

import hashlib
import json
import math
import os
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_attention.layers.declared import MergedKernel, projections
from keras_attention.layers.seeds import part_initializer
from keras_attention.spec.parts import as_array
from keras_attention.utils.arguments import Count, Positive, checked
from keras_attention.utils.checks import did_you_mean
from keras_attention.utils.files import DamagedFile, atomic_file, check_destination

SETTINGS = "settings"
Settings = dict[str, Any]


class LowRankAdapted:
    """The methods of a `Transformer` for low-rank adaptation, under KerasHub's names.

    Reference: Hu et al. 2021, [LoRA: Low-Rank Adaptation of Large Language
    Models](https://arxiv.org/abs/2106.09685)
    """

    lora_rank: int | None = None
    name: str
    seed: int | None
    compiled: bool

    def get_lora_target_names(self) -> list[str]:
        """Return the names of the projections that `enable_lora` adapts by default (section 4.2)."""
        return ["query", "value"]

    def lora_layers(self) -> dict[str, Any]:
        """Return the layers with LoRA by their path, such as `"encoder_block_1.self_attention.query"`."""
        found: Any = projections(self)
        return {path: layer for path, layer in found.items() if layer.lora_enabled}

    @checked
    def enable_lora(
        self,
        rank: Count,
        target_layer_names: Sequence[str] | None = None,
        lora_alpha: Positive | None = None,
    ) -> None:
        """Freeze all weights, and add to each chosen projection two small matrices that are trained.

        A kernel W becomes `W + lora_alpha / rank A B`. A begins with random numbers by the model's seed and B
        with zeros, so the model computes at first what it did. The matrices are those of Keras' layers: A has
        W's axes but the last, and the rank; B the rank and W's last axis. Everywhere else the model is the
        one with merged kernels: in its `spec()`, in engines, presets, exports, and in `model.save`. Call it
        before `compile`.

        Args:
            rank: The rank r, at most that which the chosen kernels can have: K for queries and values.
                Usual values are 4 to 32.
            target_layer_names: Names of projections: `query`, `key`, `value` and `attention_output` of
                attention; `inner`, `outer` and `gate` of feed-forward networks; `inner` and `forget` of
                SSRUs. Defaults to `get_lora_target_names()`.
            lora_alpha: Scale of what is added. Defaults to `rank`, as in Keras.

        Raises:
            ValueError: If LoRA is enabled already, a name is unknown, a kernel has a lower rank, or the model
                is quantized. Nothing is changed then.

        Example:

        >>> from keras_attention.models.transformer import Transformer
        >>> model = Transformer(11, num_layers=1, hidden_dim=8, intermediate_dim=16, num_heads=2)
        >>> model.enable_lora(3, ["inner"])
        >>> [tuple(weight.shape) for weight in model.trainable_variables]
        [(8, 3), (3, 16), (8, 3), (3, 16)]
        """
        model: Any = self
        found = projections(model)
        if self.lora_rank is not None:
            raise ValueError(
                f"LoRA is enabled already, with rank {self.lora_rank}. Merge it first, by `merge_lora`, and "
                "make another model of it: `Transformer.from_spec(model.spec())`."
            )
        if any(layer.quantization_mode is not None for layer in found.values()):
            raise ValueError(
                f"{self.name} is quantized, and LoRA is for weights in full precision. Call `enable_lora` "
                "before, train, and quantize the merged model: "
                '`Transformer.from_spec(model.spec()).quantize("int8")`.'
            )
        names = target_layer_names or self.get_lora_target_names()
        known = sorted({layer.name for layer in found.values()})
        for name in names:
            if name not in known:
                raise ValueError(
                    f"`target_layer_names` has {name!r}, but the model's projections are "
                    f"{', '.join(known)}.{did_you_mean(name, known)}"
                )
        for path, layer in found.items():
            *inputs, width = layer.kernel.shape
            if layer.name in names and rank > (full := min(math.prod(inputs), width)):
                raise ValueError(
                    f"`rank` must be at most {full}, the highest that the kernel of {path}, "
                    f"{tuple(layer.kernel.shape)}, can have: larger matrices add nothing. Received: {rank}"
                )
        for layer in model._flatten_layers(include_self=False):
            layer.trainable = False
        initializer = keras.initializers.HeUniform(self.seed)
        for path, layer in found.items():
            if layer.name in names:
                layer.trainable = True
                if layer.bias is not None:
                    layer.bias.trainable = False
                own = part_initializer(initializer, f"lora/{path}")
                layer.enable_lora(rank, lora_alpha=lora_alpha, a_initializer=own)
        self.lora_rank = rank
        self.compiled = False  # The optimizer had other weights: Keras asks for another `compile`.

    def merge_lora(self) -> None:
        """Add `lora_alpha / rank A B` to the kernels, and let B begin with zeros again."""
        for layer in self.lora_layers().values():
            merged = MergedKernel(layer)
            merged.assign(merged.value)

    @checked
    def save_lora_weights(self, filepath: str | os.PathLike[str], overwrite: bool = False) -> None:
        """Write the matrices A and B alone to a NumPy archive, with which weights they belong to.

        Args:
            filepath: The file, such as `"medical.lora.npz"`.
            overwrite: Whether to replace such a file. Anything else there is never replaced.

        Raises:
            ValueError: If LoRA is not enabled, or not with one rank and one `lora_alpha` everywhere.
            OccupiedPath: If there is something that may not be replaced.
        """
        layers = self.lora_layers()
        if not layers:
            raise ValueError(
                f"{self.name} has no LoRA weights. Call `enable_lora(rank)` and train first."
            )
        path = Path(filepath)
        check_destination(path, ours=_is_ours, overwrite=overwrite)
        (rank, alpha), *others = {(one.lora_rank, one.lora_alpha) for one in layers.values()}
        if others:
            raise ValueError(
                "All layers must have one rank and one `lora_alpha`, which are saved once. Received: "
                + ", ".join(f"{k} {v.lora_rank}, {v.lora_alpha}" for k, v in layers.items())
            )
        settings = {"layers": [*layers], "rank": rank, "alpha": alpha, "base": _digest(layers)}
        arrays = {
            f"{path}.{part}": as_array(getattr(layer, f"lora_kernel_{part}"))
            for path, layer in layers.items()
            for part in "ab"
        }
        arrays[SETTINGS] = np.frombuffer(json.dumps(settings).encode(), "uint8")
        with atomic_file(path) as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]

    @checked
    def load_lora_weights(self, filepath: str | os.PathLike[str]) -> None:
        """Read what `save_lora_weights` wrote; enables LoRA as it was there, if it is not.

        Args:
            filepath: The file.

        Raises:
            DamagedFile: If the file is something else.
            ValueError: If it belongs to another model. Nothing is changed then.
        """
        settings, arrays = _read(Path(filepath))
        found: Any = projections(self)
        there = [*(self.lora_layers() or settings["layers"])]
        missing = [path for path in settings["layers"] if path not in found]
        problem = ""
        if missing:
            problem = f"it has {missing[0]!r}, which this model has not"
        elif settings["layers"] != there:
            problem = (
                f"it has {len(settings['layers'])} layers with LoRA, this model has {len(there)}"
            )
        elif self.lora_rank not in (None, settings["rank"]):
            problem = f"its rank is {settings['rank']}, that of this model {self.lora_rank}"
        layers = {path: found[path] for path in settings["layers"] if not problem}
        for path, layer in layers.items():
            *inputs, width = next(w for w in layer.variables if w.name == "kernel").shape
            for part, shape in (
                ("a", (*inputs, settings["rank"])),
                ("b", (settings["rank"], width)),
            ):
                came = arrays[f"{path}.{part}"].shape
                if came != shape and not problem:
                    problem = f"{path}.{part} is {came} there, and would be {shape} here"
        if not problem and (base := _digest(layers)) != settings["base"]:
            problem = (
                f"it was trained beside kernels with the sha256 {settings['base'][:12]}, those of this model "
                f"have {base[:12]}"
            )
        if problem:
            raise ValueError(
                f"The LoRA weights in '{filepath}' are another model's: {problem}. Nothing was changed. Load "
                "them into the model that they were trained with."
            )
        if self.lora_rank is None:
            names = list(dict.fromkeys(layer.name for layer in layers.values()))
            self.enable_lora(settings["rank"], names, settings["alpha"])
        for path, layer in layers.items():
            layer.lora_alpha = settings["alpha"]
            for part in "ab":
                getattr(layer, f"lora_kernel_{part}").assign(arrays[f"{path}.{part}"])


def _digest(layers: dict[str, Any]) -> str:
    """Return a checksum of the kernels without what LoRA adds."""
    digest = hashlib.sha256()
    for path, layer in sorted(layers.items()):
        kernel = next(weight for weight in layer.variables if weight.name == "kernel")
        digest.update(path.encode() + np.ascontiguousarray(as_array(kernel)).tobytes())
    return digest.hexdigest()


def _is_ours(path: Path) -> bool:
    try:
        return bool(_read(path))
    except DamagedFile:
        return False


def _read(path: Path) -> tuple[Settings, dict[str, np.ndarray]]:
    """Return the settings and the arrays of a file; nothing in it may be larger than the file."""
    if not path.exists():
        raise FileNotFoundError(f"There is no file '{path}'.")
    try:
        with zipfile.ZipFile(path) as archive:
            if any(item.file_size > item.compress_size for item in archive.infolist()):
                raise ValueError("it is compressed")
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        settings = json.loads(arrays.pop(SETTINGS).tobytes())
        kinds: dict[str, Any] = {"layers": list, "rank": int, "alpha": (int, float), "base": str}
        if not all(isinstance(settings[name], kind) for name, kind in kinds.items()):
            raise ValueError("its settings have other types")
        expected = {f"{path}.{part}" for path in settings["layers"] for part in "ab"}
        if arrays.keys() != expected or not expected or settings["rank"] < 1:
            raise ValueError("its settings name other arrays than it has")
        if any(
            array.dtype != "float32" or not np.isfinite(array).all() for array in arrays.values()
        ):
            raise ValueError("it has other numbers than finite ones in float32")
    except Exception as error:  # Damaged bytes raise errors of many kinds there.
        raise DamagedFile(
            f"'{path}' is no file of `save_lora_weights`, or a damaged one: {error}. Save it again."
        ) from None
    return settings, arrays
