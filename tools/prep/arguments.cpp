// What the jobs of mh-prep share.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "base/version.h"
#include "prep.h"

namespace mh::prep {

using namespace mh::text;
using nlohmann::ordered_json;

CLI::Option* add_inputs(CLI::App& app, Arguments& a, const std::string& help) {
  return app.add_option("inputs", a.inputs, help + "; - is standard input")->required()->type_name("FILE");
}

void add_output(CLI::App& app, Arguments& a) {
  app.add_option("-o,--output", a.output, "where to write [standard output]")->type_name("FILE");
}

CLI::Option* add_text(CLI::App& app, Arguments& a, const std::string& help) {
  CLI::Option* inputs = add_inputs(app, a, help);
  add_output(app, a);
  app.add_option("--crlf", a.crlf, "lines that end in CR LF: refuse or normalise [refuse]")
      ->type_name("WHAT")
      ->check(one_of({"refuse", "normalise"}));
  return inputs;
}

LineEnds line_ends(const Arguments& a, bool any_bytes) {
  return any_bytes ? LineEnds::keep : a.crlf == "refuse" ? LineEnds::refuse_crlf : LineEnds::normalise_crlf;
}

void report_dropped(uint64_t line_ends, uint64_t byte_order_marks) {
  if (line_ends > 0) log_info(counted(line_ends, "lines ended in CR LF; the CR is dropped"));
  if (byte_order_marks > 1) log_info(counted(byte_order_marks, "files began with a byte order mark, which is dropped"));
}

int threads_of(int64_t asked) { return static_cast<int>(asked > 0 ? asked : std::thread::hardware_concurrency()); }

std::string speed(uint64_t bytes, double seconds) {
  const double rate = static_cast<double>(bytes) / std::max(seconds, 1e-6);
  return str(human_bytes(bytes), " in ", human_seconds(seconds), " (", human_bytes(static_cast<uint64_t>(rate)), "/s)");
}

std::string counted(uint64_t count, const std::string& what) {
  return with_commas(static_cast<int64_t>(count)) + " " + what;
}

std::string provenance_of(const Arguments& a, const BertVocabulary& vocabulary, const ordered_json& more) {
  ordered_json made{{"tool", str("mh-prep ", version())}, {"inputs", a.inputs}};
  if (vocabulary.wordpiece.empty()) made["vocabulary"] = vocabulary.vocab;
  else
    made.update({{"wordpiece", vocabulary.wordpiece},
                 {"cased", vocabulary.cased},
                 {"strip_accents", vocabulary.strip_accents}});
  made["crlf"] = a.crlf;
  if (!more.empty()) made.update(more);
  return made.dump(-1, ' ', false, ordered_json::error_handler_t::replace);  // a name may be any bytes
}

}  // namespace mh::prep
