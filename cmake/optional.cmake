# Parts that a build may lack, as a device or a library of products. Each has an option ECH_NAME: ON, OFF, or AUTO, where what it
# needs is found. ECH_HAS_NAME is what came of it, which configuring prints.

# ech_option(NAME what): declares ECH_NAME, and says in ECH_WANTS_NAME whether to look for what the part needs.
function(ech_option name what)
  set(ECH_${name} "AUTO" CACHE STRING "${what}: ON, OFF, or AUTO, where it is found")
  set_property(CACHE ECH_${name} PROPERTY STRINGS AUTO ON OFF)
  if(ECH_${name} STREQUAL "OFF")
    set(ECH_WANTS_${name} OFF PARENT_SCOPE)
  else()
    set(ECH_WANTS_${name} ON PARENT_SCOPE)
  endif()
endfunction()

# ech_decide(NAME what lacking found): sets ECH_HAS_NAME. lacking: what is missing, and empty where nothing is; found: what is there.
function(ech_decide name what lacking found)
  if(NOT ECH_WANTS_${name})
    set(lacking "ECH_${name} is OFF")
  endif()
  if(lacking AND ECH_${name} STREQUAL "ON")
    message(FATAL_ERROR "ECH_${name}=ON, but ${lacking}; leave ECH_${name} out to build without ${what}")
  elseif(lacking)
    set(ECH_HAS_${name} OFF PARENT_SCOPE)
    message(STATUS "${what}: left out, ${lacking}")
  else()
    set(ECH_HAS_${name} ON PARENT_SCOPE)
    message(STATUS "${what}: ${found}")
  endif()
endfunction()
