// Releasecheck tests what users of the published modules get. It packs each module as the
// go command does for a tag, into a module proxy of files, with the version that the go.mod
// files of the repository require. Then it builds and runs a consumer of each module outside
// the repository, where go.work and the replace directives have no effect, and builds the latest release of each nested module
// with the present root module.
//
//	go run ./bench/releasecheck
package main

import (
	"flag"
	"fmt"
	"log"
	"os"
	"path/filepath"
)

// A published is a module that gets tags.
type published struct {
	dir      string   // relative to the root of the repository
	consumer string   // folder in consumer
	links    []string // the modules that the consumer may link besides those of published; nil: any
}

var publishedModules = []published{
	{dir: ".", consumer: "heed", links: []string{"golang.org/x/net", "golang.org/x/text"}},
	{dir: "throttleredis", consumer: "throttleredis"},
	{dir: "otelheed", consumer: "otelheed"},
	{dir: "promheed", consumer: "promheed"},
}

// unpublished are the folders of modules that only serve the repository.
var unpublished = []string{"bench", "bench/dashboard", "debugpage/browsertest", "examples/gateway", "examples/herd", "examples/redis", "examples/uses"}

func main() {
	log.SetFlags(0)
	log.SetPrefix("releasecheck: ")
	root := flag.String("root", "..", "folder of the repository")
	keep := flag.Bool("keep", false, "keep the temporary folder with the proxy and the consumers")
	flag.Parse()
	abs, err := filepath.Abs(*root)
	if err != nil {
		log.Fatal(err)
	}
	temp, err := os.MkdirTemp("", "heed-releasecheck-")
	if err != nil {
		log.Fatal(err)
	}
	err = check(abs, temp)
	if *keep {
		log.Print("kept ", temp)
	} else if err := os.RemoveAll(temp); err != nil {
		log.Print(err)
	}
	if err != nil {
		log.Fatal(err)
	}
}

// check packs all modules before the first consumer, because modules require each other.
func check(root, temp string) error {
	mods, err := readModules(root)
	if err != nil {
		return err
	}
	proxy := filepath.Join(temp, "proxy")
	packed := map[string]string{}
	for _, m := range mods {
		line, err := pack(root, proxy, m)
		if err != nil {
			return fmt.Errorf("%s: %w", m.path, err)
		}
		packed[m.path] = line
	}
	for _, m := range mods {
		linked, err := consume(root, temp, proxy, m, mods)
		if err != nil {
			return fmt.Errorf("consumer of %s %s: %w", m.path, m.version, err)
		}
		fmt.Printf("%s %s: %s; a consumer builds, runs and links %d other modules: %v\n",
			m.path, m.version, packed[m.path], len(linked), linked)
		if m.dir == mods[0].dir {
			continue
		}
		said, err := buildPrevious(root, temp, proxy, m, mods[0])
		if err != nil {
			return fmt.Errorf("%s: %w", m.path, err)
		}
		fmt.Printf("%s: %s\n", m.path, said)
	}
	return nil
}
