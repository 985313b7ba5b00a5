# ech_add_oracle_test(ROOM/NAME script [argument ...]): compares with other people's programs, in
# $ECHELON_ORACLE_PYTHON (else python3) of the environment in which ctest runs. The script exits 77,
# and the test is skipped, where that Python lacks a package.
function(ech_add_oracle_test name)
  add_test(NAME ${name}
           COMMAND sh -c "python=\${ECHELON_ORACLE_PYTHON:-python3} && command -v \"$python\" > /dev/null || exit 77 && exec \"$python\" \"$@\"" oracle ${ARGN})
  set_tests_properties(${name} PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 600)
endfunction()
