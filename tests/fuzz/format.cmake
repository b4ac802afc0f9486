foreach(name gguf_fuzz safetensors_fuzz)
  hisparse_fuzz(${name} SRCS ${name}.cc DEPS hisparse_format)
endforeach()
hisparse_fuzz(config_json_fuzz SRCS config_json_fuzz.cc DEPS hisparse_format hisparse_plan)
