# The list of built-in families: one for each file of src/model/families, by name.
file(GLOB families CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}/src/model/families
     ${PROJECT_SOURCE_DIR}/src/model/families/*.c)
list(SORT families)
set(externs)
set(rows)
set(names)
foreach(file ${families})
  cmake_path(GET file STEM name)
  string(APPEND externs "extern const ech_family ech_family_row_${name};\n")
  string(APPEND rows "    &ech_family_row_${name},\n")
  string(APPEND names "    \"${name} \"\n")
endforeach()
set(path ${PROJECT_BINARY_DIR}/generated/model/families.c)
file(CONFIGURE OUTPUT ${path} @ONLY CONTENT [[
#include "model/family.h"

@externs@
const ech_family *const ech_families[] = {
@rows@};
const size_t ech_families_count = sizeof ech_families / sizeof *ech_families;
const char ech_families_names[] =
@names@    ;
]])
target_sources(ech_model PRIVATE ${path})
