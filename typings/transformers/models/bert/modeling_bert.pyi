from torch import Tensor
from transformers.modeling_outputs import BaseModelOutputWithPooling, TokenClassifierOutput
from transformers.models._encoder import _Encoder
from transformers.models.bert.configuration_bert import BertConfig

class BertModel(_Encoder):
    config: BertConfig

    def __init__(self, config: BertConfig, add_pooling_layer: bool = True) -> None: ...
    def __call__(
        self,
        input_ids: Tensor | None = None,
        *,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        **kwargs: object,
    ) -> BaseModelOutputWithPooling: ...

class BertForTokenClassification(_Encoder):
    config: BertConfig

    def __init__(self, config: BertConfig) -> None: ...
    def __call__(
        self,
        input_ids: Tensor | None = None,
        *,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        **kwargs: object,
    ) -> TokenClassifierOutput: ...
