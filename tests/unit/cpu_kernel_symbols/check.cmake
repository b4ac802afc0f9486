# A kernel object may define one external symbol, its table, and nothing weak: the linker could take
# a shared inline function from the object with the widest instructions, and the program would crash
# on an older machine.
set(checked 0)
foreach(object ${OBJECTS})
  if(NOT object MATCHES "kernels_v[0-9]+\\.cc")
    continue()
  endif()
  math(EXPR checked "${checked} + 1")
  execute_process(COMMAND ${NM} --defined-only --extern-only ${object}
    OUTPUT_VARIABLE symbols RESULT_VARIABLE result)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "nm failed on ${object}")
  endif()
  string(REGEX REPLACE "\n$" "" symbols "${symbols}")
  string(REPLACE "\n" ";" symbols "${symbols}")
  list(LENGTH symbols count)
  if(NOT count EQUAL 1 OR NOT symbols MATCHES " T .*kernels_v[0-9]+")
    message(FATAL_ERROR "${object} shares symbols with other files: ${symbols}")
  endif()
endforeach()
if(NOT checked EQUAL 3)
  message(FATAL_ERROR "expected three kernel objects, found ${checked}")
endif()
