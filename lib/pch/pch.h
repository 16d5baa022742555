// Precompiled for the sources of libmultihead and of the tools: ATen alone takes 7 s to parse.
#include <ATen/ATen.h>

#include <nlohmann/json.hpp>
