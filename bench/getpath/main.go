// Getpath counts the files and functions of module heed that one client.Get with one retry
// runs through: the zero Transport, its Tracker included, and a server that responds with 503,
// then with 200.
//
// It builds the program in client with coverage of all packages of the module, runs it, and
// counts the functions of which at least one statement was executed, initialization included.
// Functions without a name belong to the function that contains them. With -list it prints
// them by package, with -json one line of JSON. With -check it exits with code 1 if there are
// more than the goals allow.
package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"path/filepath"
)

// The goals of a call with one retry.
const (
	maxFiles     = 30
	maxFunctions = 100
)

func main() {
	log.SetFlags(0)
	list := flag.Bool("list", false, "print the functions by package")
	asJSON := flag.Bool("json", false, "print a line of JSON")
	check := flag.Bool("check", false, fmt.Sprintf("exit with code 1 above %d files or %d functions", maxFiles, maxFunctions))
	flag.Parse()
	functions, err := measure()
	if err != nil {
		log.Fatal("getpath: ", err)
	}
	files := countFiles(functions)
	switch {
	case *asJSON:
		err = json.NewEncoder(os.Stdout).Encode(map[string]int{"files": files, "functions": len(functions), "max_files": maxFiles, "max_functions": maxFunctions})
	case *list:
		err = printList(os.Stdout, functions)
	}
	if err != nil {
		log.Fatal("getpath: ", err)
	}
	if !*asJSON {
		fmt.Printf("files %d functions %d\n", files, len(functions))
	}
	if *check && (files > maxFiles || len(functions) > maxFunctions) {
		log.Fatalf("getpath: more than %d files or %d functions", maxFiles, maxFunctions)
	}
}

// measure builds and runs the client, and returns the functions that it executed.
func measure() ([]function, error) {
	dir, err := os.MkdirTemp("", "getpath")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	program, data := filepath.Join(dir, "client"), filepath.Join(dir, "data")
	if err := os.Mkdir(data, 0o700); err != nil {
		return nil, err
	}
	const client = module + "/bench/getpath/client"
	if _, err := run("go", "build", "-cover", "-coverpkg="+module+"/...", "-o", program, client); err != nil {
		return nil, err
	}
	if _, err := run("env", "GOCOVERDIR="+data, program); err != nil {
		return nil, err
	}
	out, err := run("go", "tool", "covdata", "func", "-i="+data)
	if err != nil {
		return nil, err
	}
	return executed(bytes.NewReader(out))
}

// run runs a command and returns its output.
func run(name string, args ...string) ([]byte, error) {
	cmd := exec.Command(name, args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return out, nil
}

// printList prints the number of files and functions of each package, and the functions.
func printList(w io.Writer, functions []function) error {
	for i := 0; i < len(functions); {
		end := i
		for end < len(functions) && functions[end].pkg == functions[i].pkg {
			end++
		}
		group := functions[i:end]
		if _, err := fmt.Fprintf(w, "%s: files %d functions %d\n", group[0].pkg, countFiles(group), len(group)); err != nil {
			return err
		}
		for _, f := range group {
			if _, err := fmt.Fprintf(w, "\t%s:%d\t%s\n", f.file, f.line, f.name); err != nil {
				return err
			}
		}
		i = end
	}
	return nil
}
