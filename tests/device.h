// The device the tests of device code use: `--device cpu|cuda` of the test programs, cpu unless told.
#pragma once

#include <string>

const std::string& test_device();
