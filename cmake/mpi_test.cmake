# ech_add_mpi_program(NAME library ...): a program of these tests, from NAME.c.
# ech_add_mpi_test(NAME name RANKS n COMMAND program [argument ...] [PASS regex])
# runs a program, which may be a target, as n ranks under Open MPI's launcher. It passes when all
# ranks exit with 0, or with PASS when the output matches, whatever the exit code. More ranks than
# cores are fine. Without the launcher the test is disabled. What MPI libraries leak is not ours: leaks are looked for in the other tests.
include_guard(GLOBAL)

function(ech_add_mpi_program name)
  add_executable(${name} ${name}.c)
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_link_libraries(${name} PRIVATE ${ARGN})
endfunction()

function(ech_add_mpi_test)
  cmake_parse_arguments(PARSE_ARGV 0 test "" "NAME;RANKS;PASS" "COMMAND")
  list(POP_FRONT test_COMMAND program)
  if(TARGET ${program})
    set(program $<TARGET_FILE:${program}>)
  endif()
  add_test(NAME ${test_NAME}
           COMMAND ${MPIEXEC_EXECUTABLE} -n ${test_RANKS} --bind-to none
                   ${program} ${test_COMMAND})
  set_tests_properties(${test_NAME} PROPERTIES PROCESSORS 2 TIMEOUT 600
    SKIP_RETURN_CODE 77
    ENVIRONMENT "OMPI_ALLOW_RUN_AS_ROOT=1;OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1;OMPI_MCA_rmaps_base_oversubscribe=1;OMPI_MCA_mpi_yield_when_idle=1;ASAN_OPTIONS=detect_leaks=0")
  if(NOT ECH_HAS_MPI)
    set_tests_properties(${test_NAME} PROPERTIES DISABLED ON)
  endif()
  if(DEFINED test_PASS)
    set_tests_properties(${test_NAME} PROPERTIES PASS_REGULAR_EXPRESSION "${test_PASS}")
  endif()
endfunction()
