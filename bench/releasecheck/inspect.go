package main

import (
	"archive/zip"
	"bytes"
	"errors"
	"fmt"
	"strings"
)

// inspect returns the number of files in an archive. It fails if the archive contains files
// that must not be published, too large testdata, or no license. All names begin with
// prefix.
func inspect(archive []byte, prefix string) (files int, err error) {
	r, err := zip.NewReader(bytes.NewReader(archive), int64(len(archive)))
	if err != nil {
		return 0, err
	}
	testdata, licensed := uint64(0), false
	for _, f := range r.File {
		name := strings.TrimPrefix(f.Name, prefix)
		if err := checkName(name); err != nil {
			return 0, err
		}
		if strings.Contains("/"+name, "/testdata/") {
			testdata += f.UncompressedSize64
		}
		licensed = licensed || name == "LICENSE"
	}
	if testdata > maxTestdata {
		return 0, fmt.Errorf("testdata have %d KiB, the maximum is %d KiB", testdata>>10, maxTestdata>>10)
	}
	if !licensed {
		return 0, errors.New("the archive contains no LICENSE")
	}
	return len(r.File), nil
}
