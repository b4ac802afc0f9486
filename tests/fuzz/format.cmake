foreach(name gguf_fuzz safetensors_fuzz config_json_fuzz)
  hisparse_fuzz(${name} SRCS ${name}.cc DEPS hisparse_format)
endforeach()
