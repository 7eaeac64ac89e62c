"""A `Transformer` in eight bits."""

import warnings
from typing import Any, Literal

import keras

from keras_attention.spec.parts import SpecError
from keras_attention.utils.arguments import checked


class Quantizable:
    """`quantize` of a `Transformer`."""

    quantized: dict[str, Any] | None = None  # Keras' configuration of it
    lora_rank: int | None
    name: str

    @checked
    def quantize(
        self, mode: Literal["int8"] = "int8", config: Any = None, type_check: bool = True
    ) -> None:
        """Store all matrices and tables in eight bits, in place, and compute their products so.

        That is Keras' quantization: a row of a product's input is rounded in each call, a column of a matrix,
        or a token's row of a table, once, each by its largest number, so weights take about a fourth of the
        memory. The plain search translates with it; engines, presets and exports refuse it by name.
        `model.save` and `keras.saving.load_model` keep it.

        Args:
            mode: `"int8"`; Keras' other modes are refused.
            config: A `keras.quantizers.Int8QuantizationConfig`. Defaults to Keras' own.
            type_check: Whether subclasses of layers stay as they are, as in Keras. Defaults to True.

        Raises:
            ValueError: If a layer is of a kind whose computation is not known, has LoRA, or is quantized
                already.

        Example:

        >>> import numpy as np
        >>> from keras_attention.models.transformer import Transformer
        >>> model = Transformer(11, num_layers=1, hidden_dim=8, intermediate_dim=16, num_heads=2)
        >>> model.quantize("int8")
        >>> inputs = {"encoder_token_ids": np.array([[5, 1]]), "decoder_token_ids": np.array([[0, 7]])}
        >>> tuple(model(inputs).shape)
        (1, 2, 11)
        """
        model: Any = self
        if self.lora_rank is not None:
            raise ValueError(
                f"{self.name} has LoRA. Quantize the merged model: "
                f'`Transformer.from_spec(model.spec()).quantize("{mode}")`.'
            )
        try:
            model.spec()
        except SpecError as error:
            raise ValueError(
                f"{self.name} cannot be quantized, which is for a plain model: {error}"
            ) from None
        config = keras.quantizers.Int8QuantizationConfig() if config is None else config
        with warnings.catch_warnings():
            # Of layers without a matrix Keras says that they stay as they are.
            said = ".*(does not have a `quantize|do not support quantization)"
            warnings.filterwarnings("ignore", said, UserWarning)
            super().quantize(mode, config=config, type_check=type_check)  # type: ignore[misc]
        self.quantized = keras.saving.serialize_keras_object(config)
