package main

import (
	"archive/zip"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/mod/semver"
)

// buildPrevious builds the latest release of m, a nested module, with the packed version of the root module, and says
// what it did. A program that updates the root module alone has these two, and m may use its internal packages. It builds nothing if m
// was never released, or if the versions may differ in what they export: before v1 the minor version, then the major one.
func buildPrevious(root, temp, proxy string, m, rootModule releaseModule) (string, error) {
	version, err := latestTag(root, m)
	switch {
	case err != nil:
		return "", err
	case version == "":
		return "no earlier release", nil
	case compatibility(version) != compatibility(rootModule.version):
		return fmt.Sprintf("release %s may not fit %s %s", version, rootModule.path, rootModule.version), nil
	}
	dir, err := extract(root, temp, m.dir, m.dir+"/"+version)
	if err != nil {
		return "", err
	}
	env, err := environment(temp, proxy)
	if err != nil {
		return "", err
	}
	for _, args := range [][]string{
		{"mod", "edit", "-dropreplace", rootModule.path, "-require", rootModule.path + "@" + rootModule.version},
		{"build", "./..."},
	} {
		if _, err := goCommand(dir, env, args...); err != nil {
			return "", fmt.Errorf("release %s with %s %s: %w", version, rootModule.path, rootModule.version, err)
		}
	}
	return fmt.Sprintf("release %s builds with %s %s", version, rootModule.path, rootModule.version), nil
}

// compatibility returns the part of a version that changes when something exported is removed.
func compatibility(version string) string {
	if semver.Major(version) == "v0" {
		return semver.MajorMinor(version)
	}
	return semver.Major(version)
}

// latestTag returns the latest version before m.version, without pre-releases, that has a tag; "" if there is none.
// With CI=true a shallow clone without any tag is an error, because the repository may have some.
func latestTag(root string, m releaseModule) (latest string, err error) {
	tags, err := git(root, "tag")
	if err != nil {
		return "", err
	}
	if tags == "" && os.Getenv("CI") == "true" {
		shallow, err := git(root, "rev-parse", "--is-shallow-repository")
		if err != nil {
			return "", err
		}
		if strings.TrimSpace(shallow) == "true" {
			return "", errors.New("a shallow clone without tags does not show whether there is an earlier release: clone all (fetch-depth: 0)")
		}
	}
	for tag := range strings.FieldsSeq(tags) {
		v, nested := strings.CutPrefix(tag, m.dir+"/")
		if nested && semver.IsValid(v) && semver.Prerelease(v) == "" && semver.Compare(v, m.version) < 0 && (latest == "" || semver.Compare(v, latest) > 0) {
			latest = v
		}
	}
	return latest, nil
}

// extract writes the folder dir of the repository, as it was at tag, into temp, and returns its new path.
func extract(root, temp, dir, tag string) (string, error) {
	out := filepath.Join(temp, "previous")
	file := out + ".zip"
	if _, err := git(root, "archive", "--format=zip", "--output="+file, tag, dir); err != nil {
		return "", err
	}
	archive, err := zip.OpenReader(file)
	if err != nil {
		return "", err
	}
	out = filepath.Join(out, strings.ReplaceAll(tag, "/", "_"))
	return filepath.Join(out, dir), errors.Join(os.CopyFS(out, archive), archive.Close())
}

// git runs a command of git in dir. The owner of the clone may be another user, whom git would not trust.
func git(dir string, args ...string) (string, error) {
	cmd := exec.Command("git", append([]string{"-c", "safe.directory=*"}, args...)...)
	cmd.Dir = dir
	var problem strings.Builder
	cmd.Stderr = &problem
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w: %s", args[0], err, problem.String())
	}
	return string(out), nil
}
