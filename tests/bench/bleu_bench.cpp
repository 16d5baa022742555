// Measures the CPU time (ms) of corpus BLEU or chrF on one thread, without reading the files, and prints it with the
// score: bleu_bench bleu|chrf HYP REF
#include <cstdio>
#include <ctime>
#include <string>
#include <string_view>

#include "base/file.h"
#include "base/text.h"
#include "metrics/bleu.h"
#include "metrics/chrf.h"

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  const auto hypotheses = mh::split(mh::read_text_file(argv[2]), '\n');
  const auto references = mh::split(mh::read_text_file(argv[3]), '\n');
  const mh::metrics::BleuOptions options;
  const std::clock_t start_time = std::clock();
  auto sum = [&](auto metric, auto statistics) {
    for (size_t i = 0; i + 1 < hypotheses.size(); ++i) {  // the element after the last line end is empty
      const std::string_view reference = references.at(i);
      statistics += metric.statistics(hypotheses[i], {&reference, 1});
    }
    return statistics;
  };
  const double score = std::string_view(argv[1]) == "chrf"
                           ? chrf_score(sum(mh::metrics::Chrf({}), mh::metrics::ChrfStatistics{}))
                           : bleu_score(sum(mh::metrics::Bleu(options), mh::metrics::BleuStatistics{}), options,
                                        mh::metrics::BleuScope::corpus)
                                 .score;
  const double milliseconds = 1000.0 * static_cast<double>(std::clock() - start_time) / CLOCKS_PER_SEC;
  std::printf("%.3f %.10f\n", milliseconds, score);
}
