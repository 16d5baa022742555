// The process's peak of memory, where the system tells.
#pragma once

#include <cstdint>
#include <fstream>
#include <string>

inline int64_t peak_kb() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.rfind("VmHWM:", 0) == 0) return std::stoll(line.substr(6));
  return 0;
}

// Starts the peak anew; false where the system does not allow it.
inline bool reset_peak() {
  std::ofstream clear("/proc/self/clear_refs");
  clear << "5" << std::flush;
  return clear.good();
}
