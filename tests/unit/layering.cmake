hisparse_test(layering_test SRCS layering_test.cc)
