#include "cli/command_line.h"

int main(int argc, char** argv) { return trireme_command_line(argc, argv); }
