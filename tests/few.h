// rc::check of kernels that run thread by thread, which takes a second a case: a twentieth of the cases, so that
// RC_PARAMS="max_success=2000" tries 100.
#pragma once

#include <rapidcheck.h>

#include <iostream>
#include <string>

template <class Body>
bool check_few(const std::string& what, const Body& body) {
  using namespace rc::detail;
  std::cerr << "\n- " << what << "\n";
  TestMetadata metadata;
  metadata.description = what;
  TestParams params = configuration().testParams;
  params.maxSuccess = (params.maxSuccess + 19) / 20;
  const TestResult result = checkTestable(body, metadata, params);
  printResultMessage(result, std::cerr);
  std::cerr << "\n";
  return result.is<SuccessResult>();
}
