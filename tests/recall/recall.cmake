add_library(hisparse_recall STATIC
  recall_context.cc recall_engine.cc recall_files.cc recall_model.cc recall_rows.cc
  recall_vocabulary.cc)
target_link_libraries(hisparse_recall PUBLIC hisparse_test_support)

hisparse_test(recall_test
  SRCS recall_test.cc recall_fixture_test.cc recall_rows_test.cc
  DEPS hisparse_recall)

# A context of a million tokens: scripts/recall_1m.sh.
add_executable(recall_long recall_long.cc)
target_link_libraries(recall_long PRIVATE hisparse_recall)
add_dependencies(benchmarks recall_long)
