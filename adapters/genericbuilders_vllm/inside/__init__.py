"""This library's back ends inside vLLM; see `genericbuilders_vllm.inside.plugin`. Importing this imports nothing."""
