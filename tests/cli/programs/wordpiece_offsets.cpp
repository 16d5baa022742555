// Prints the WordPiece ids of each line of standard input with their byte ranges in the line, as ID:BEGIN:END, for
// comparison with the package `tokenizers`: wordpiece-offsets VOCABULARY
#include <cstdio>
#include <iostream>
#include <string>

#include "text/wordpiece.h"

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const auto tokenizer = mh::text::load_tokenizer(argv[1]);
  const mh::text::WordPieceTokenizer& wordpiece = mh::text::require_wordpiece(*tokenizer, argv[1]);
  std::string line;
  std::vector<int32_t> token_ids;
  std::vector<mh::text::TextRange> ranges;
  while (std::getline(std::cin, line)) {
    token_ids.clear();
    ranges.clear();
    wordpiece.encode_with_ranges(line, token_ids, ranges);
    for (size_t i = 0; i < token_ids.size(); ++i)
      std::printf("%d:%u:%u ", token_ids[i], ranges[i].begin, ranges[i].end);
    std::putchar('\n');
  }
}
