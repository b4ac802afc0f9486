hisparse_test(engine_sim_test
  SRCS engine_sim_test.cc paged_oracle.cc
  DEPS hisparse_engine
  LABELS asan)
