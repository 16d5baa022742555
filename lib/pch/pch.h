// Precompiled header of the sources of libmultihead. Contains only headers that nearly all sources include, since every
// source pays for instantiating the templates that the inline functions of these headers use.
#include "nn/aten.h"
