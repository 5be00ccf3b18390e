# find_package(migraphx) finds this file when CMAKE_PREFIX_PATH or migraphx_DIR holds what `mgx-c --cmakedir` prints.
# Imports migraphx::c, to which a program links.
get_filename_component(_mgx_root "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
if(NOT TARGET migraphx::c)
  add_library(migraphx::c SHARED IMPORTED)
  set_target_properties(migraphx::c PROPERTIES
    IMPORTED_LOCATION "${_mgx_root}/lib/libmigraphx_c.so.3"
    IMPORTED_SONAME "libmigraphx_c.so.3"
    INTERFACE_INCLUDE_DIRECTORIES "${_mgx_root}/include"
    INTERFACE_COMPILE_FEATURES "cxx_std_14")
endif()
set(migraphx_INCLUDE_DIRS "${_mgx_root}/include")
set(migraphx_LIBRARIES migraphx::c)
unset(_mgx_root)
