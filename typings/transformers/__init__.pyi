from transformers.cache_utils import Cache as Cache
from transformers.cache_utils import DynamicCache as DynamicCache
from transformers.configuration_utils import PreTrainedConfig as PreTrainedConfig
from transformers.generation.configuration_utils import GenerationConfig as GenerationConfig
from transformers.masking_utils import AttentionMaskInterface as AttentionMaskInterface
from transformers.modeling_utils import AttentionInterface as AttentionInterface
from transformers.modeling_utils import PreTrainedModel as PreTrainedModel
from transformers.models.auto import AutoConfig as AutoConfig
from transformers.models.auto import AutoModelForCausalLM as AutoModelForCausalLM
from transformers.models.auto import AutoTokenizer as AutoTokenizer
from transformers.models.llama.configuration_llama import LlamaConfig as LlamaConfig
from transformers.models.llama.modeling_llama import LlamaForCausalLM as LlamaForCausalLM
from transformers.models.llama.modeling_llama import LlamaModel as LlamaModel
from transformers.models.mistral.configuration_mistral import MistralConfig as MistralConfig
from transformers.models.mistral.modeling_mistral import MistralForCausalLM as MistralForCausalLM
from transformers.models.mistral.modeling_mistral import MistralModel as MistralModel
from transformers.models.qwen2.configuration_qwen2 import Qwen2Config as Qwen2Config
from transformers.models.qwen2.modeling_qwen2 import Qwen2ForCausalLM as Qwen2ForCausalLM
from transformers.models.qwen2.modeling_qwen2 import Qwen2Model as Qwen2Model
from transformers.models.qwen3.configuration_qwen3 import Qwen3Config as Qwen3Config
from transformers.models.qwen3.modeling_qwen3 import Qwen3ForCausalLM as Qwen3ForCausalLM
from transformers.models.qwen3.modeling_qwen3 import Qwen3Model as Qwen3Model
from transformers.tokenization_utils_base import BatchEncoding as BatchEncoding
from transformers.tokenization_utils_base import PreTrainedTokenizerBase as PreTrainedTokenizerBase
from transformers.tokenization_utils_tokenizers import TokenizersBackend as TokenizersBackend
from transformers.utils.quantization_config import GgufConfig as GgufConfig

PretrainedConfig = PreTrainedConfig

__version__: str
