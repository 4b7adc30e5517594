# Tests written with pytest: files *_TIER_test.py of the calling folder, one CTest entry per test function.
# They share uprobed files, cgroups and the machine's attention: one at a time (RESOURCE_LOCK).
#   pytest_tier(TIER MODULES pytest ... TIMEOUT SECONDS)
function(pytest_tier tier)
  cmake_parse_arguments(arg "" "TIMEOUT" "MODULES" ${ARGN})
  list(JOIN arg_MODULES ", " imports)
  set(python "")
  foreach(candidate python3 /usr/bin/python3)
    execute_process(COMMAND ${candidate} -c "import sys, ${imports}; print(sys.executable)"
      OUTPUT_VARIABLE found OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE status)
    if(status EQUAL 0 AND NOT python)
      set(python ${found})
    endif()
  endforeach()
  if(NOT python)
    message(STATUS "no python3 with ${imports}: the ${tier} tests will fail; hint: hack/setup")
    set(python python3)
  endif()

  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*_${tier}_test.py)
  foreach(source ${sources})
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${source})
    get_filename_component(file_name ${source} NAME_WE)
    file(STRINGS ${source} definitions REGEX "^def test_[A-Za-z0-9_]+\\(")
    foreach(definition ${definitions})
      string(REGEX REPLACE "^def (test_[A-Za-z0-9_]+)\\(.*" "\\1" test "${definition}")
      string(REGEX REPLACE "^test_" "" sentence "${test}")
      set(name "${file_name}.${sentence}")
      add_test(NAME ${name} COMMAND ${python} -B -m pytest -q -rs -p no:cacheprovider
        --tb=short --rootdir ${CMAKE_CURRENT_SOURCE_DIR} ${source}::${test}
        WORKING_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR})
      set_tests_properties(${name} PROPERTIES LABELS ${tier} TIMEOUT ${arg_TIMEOUT}
        RESOURCE_LOCK agent SKIP_RETURN_CODE 77 ENVIRONMENT "INGERO_BUILD=${CMAKE_BINARY_DIR}")
    endforeach()
  endforeach()
endfunction()
