// Prints the expressions of standard input, one a line, that Prometheus' parser refuses, and why.
// Ends with code 1 if there is one.
package main

import (
	"bufio"
	"fmt"
	"os"

	"github.com/prometheus/prometheus/promql/parser"
)

func main() {
	promql := parser.NewParser(parser.Options{})
	lines := bufio.NewScanner(os.Stdin)
	refused := 0
	for lines.Scan() {
		if _, err := promql.ParseExpr(lines.Text()); err != nil {
			fmt.Printf("%s: %v\n", lines.Text(), err)
			refused = 1
		}
	}
	if err := lines.Err(); err != nil {
		fmt.Println(err)
		refused = 1
	}
	os.Exit(refused)
}
