# Manual pages and shell completion, from what the program prints of its commands and keys. They
# need Python 3; a build without it says so and has none.
find_package(Python3 COMPONENTS Interpreter QUIET)
if(NOT Python3_Interpreter_FOUND)
  message(STATUS "manual pages and shell completion: left out, as there is no Python 3")
  return()
endif()
set(ech_pages ${PROJECT_BINARY_DIR}/share)
add_custom_command(
  OUTPUT ${ech_pages}/man/man1/echelon.1
  COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/tools/make_pages.py $<TARGET_FILE:echelon>
          ${ech_pages}
  DEPENDS echelon ${PROJECT_SOURCE_DIR}/tools/make_pages.py
  COMMENT "Manual pages and shell completion"
  VERBATIM)
add_custom_target(pages ALL DEPENDS ${ech_pages}/man/man1/echelon.1)
install(DIRECTORY ${ech_pages}/ DESTINATION share)
