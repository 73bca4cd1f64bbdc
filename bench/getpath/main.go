// Getpath counts the statements and files of module heed that one client.Get with one retry
// runs through: a Transport with a token bucket, its Tracker included, and a server that responds with
// 503 and a body of ten bytes, then with 200 and a body.
//
// It builds the program in client with coverage of all packages of the module, runs it, and
// counts the statements that were executed at least once, initialization included, and the files that
// contain any. With -list it prints them by package and file, with -json one line of JSON. With -check it exits
// with code 1 if there are more than the goals allow.
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
	maxFiles      = 34
	maxStatements = 750
)

func main() {
	log.SetFlags(0)
	list := flag.Bool("list", false, "print the executed statements by package and file")
	asJSON := flag.Bool("json", false, "print a line of JSON")
	check := flag.Bool("check", false, fmt.Sprintf("exit with code 1 above %d statements or %d files", maxStatements, maxFiles))
	flag.Parse()
	files, err := measure()
	if err != nil {
		log.Fatal("getpath: ", err)
	}
	switch {
	case *asJSON:
		err = json.NewEncoder(os.Stdout).Encode(map[string]int{"statements": sum(files), "files": len(files), "max_statements": maxStatements, "max_files": maxFiles})
	case *list:
		err = printList(os.Stdout, files)
	}
	if err != nil {
		log.Fatal("getpath: ", err)
	}
	if !*asJSON {
		fmt.Printf("statements %d files %d\n", sum(files), len(files))
	}
	if *check && (len(files) > maxFiles || sum(files) > maxStatements) {
		log.Fatalf("getpath: more than %d statements or %d files", maxStatements, maxFiles)
	}
}

// measure builds and runs the client, and returns the files of which it executed statements.
func measure() ([]file, error) {
	dir, err := os.MkdirTemp("", "getpath")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	program, data, profile := filepath.Join(dir, "client"), filepath.Join(dir, "data"), filepath.Join(dir, "profile")
	if err := os.Mkdir(data, 0o700); err != nil {
		return nil, err
	}
	const client = module + "/bench/getpath/client"
	if err := run("go", "build", "-cover", "-coverpkg="+module+"/...", "-o", program, client); err != nil {
		return nil, err
	}
	if err := run("env", "GOCOVERDIR="+data, program); err != nil {
		return nil, err
	}
	if err := run("go", "tool", "covdata", "textfmt", "-i="+data, "-o="+profile); err != nil {
		return nil, err
	}
	text, err := os.ReadFile(profile)
	if err != nil {
		return nil, err
	}
	return executed(bytes.NewReader(text))
}

// run runs a command.
func run(name string, args ...string) error {
	cmd := exec.Command(name, args...)
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// printList prints the number of statements and files of each package, and the statements of each file.
func printList(w io.Writer, files []file) error {
	for i := 0; i < len(files); {
		end := i
		for end < len(files) && files[end].Package == files[i].Package {
			end++
		}
		group := files[i:end]
		if _, err := fmt.Fprintf(w, "%s: statements %d files %d\n", group[0].Package, sum(group), len(group)); err != nil {
			return err
		}
		for _, f := range group {
			if _, err := fmt.Fprintf(w, "\t%4d  %s\n", f.Statements, f.Name); err != nil {
				return err
			}
		}
		i = end
	}
	return nil
}
