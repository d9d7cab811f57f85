#include "support/node_main.hpp"

int main(int argc, char** argv) { return strata::test::node_test_main(argc, argv); }
