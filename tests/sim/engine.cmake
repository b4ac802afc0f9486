hisparse_test(engine_sim_test
  SRCS engine_sim_test.cc paged_oracle.cc
  DEPS hisparse_engine
  LABELS asan)
hisparse_test(bad_slot_test
  SRCS bad_slot_test.cc paged_oracle.cc
  DEPS hisparse_engine
  LABELS asan)
