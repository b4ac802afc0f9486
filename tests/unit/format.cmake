hisparse_test(format_test
  SRCS
    format_checkpoint_test.cc
    format_dequantize_test.cc
    format_gguf_cursor_test.cc
    format_gguf_test.cc
    format_metadata_test.cc
    format_safetensors_test.cc
  DEPS hisparse_format
  LABELS asan)
# Skips itself, by name, unless HISPARSE_SMOLLM2 names the model file.
hisparse_test(format_smollm2_test SRCS format_smollm2_test.cc DEPS hisparse_format LABELS model)
