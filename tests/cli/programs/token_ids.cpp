// Prints the token ids of each line of standard input, for comparison with the package `tokenizers`:
// token-ids [--nul] VOCABULARY [REPETITIONS]. With --nul a NUL byte instead of a line feed ends each text. With
// REPETITIONS the program encodes all lines REPETITIONS times, prints no ids, and prints the number of tokens and the
// seconds to stderr. token-ids --json VOCABULARY prints the vocabulary as a tokenizer.json instead, and token-ids
// --begin VOCABULARY the token in front of a text.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>

#include "text/json_tokenizer.h"

int main(int argc, char** argv) {
  const std::string option = argc == 3 ? argv[1] : "";
  if (option == "--json" || option == "--begin") {
    const auto tokenizer = mh::text::load_tokenizer(argv[2]);
    if (option == "--json") std::cout << mh::text::tokenizer_json_text(*tokenizer);
    else std::cout << tokenizer->begin_id() << '\n';
    return 0;
  }
  const bool has_nul_ends = argc > 1 && std::string(argv[1]) == "--nul";
  if (has_nul_ends) ++argv, --argc;
  if (argc < 2 || argc > 3) return 2;
  const auto tokenizer = mh::text::load_tokenizer(argv[1]);
  const auto encoder = tokenizer->encoder();
  std::vector<std::string> lines;
  for (std::string line; std::getline(std::cin, line, has_nul_ends ? '\0' : '\n');) lines.push_back(line);
  std::vector<int32_t> tokens;
  if (argc == 3) {
    const auto start_time = std::chrono::steady_clock::now();
    size_t num_tokens = 0;
    for (int i = 0; i < std::atoi(argv[2]); ++i)
      for (const std::string& line : lines) {
        tokens.clear();
        encoder->encode(line, tokens);
        num_tokens += tokens.size();
      }
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start_time;
    std::fprintf(stderr, "%zu %.6f\n", num_tokens, seconds.count());
    return 0;
  }
  for (const std::string& line : lines) {
    tokens.clear();
    encoder->encode(line, tokens);
    for (int32_t token : tokens) std::printf("%d ", token);
    std::putchar('\n');
  }
}
