package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// stage is where one architecture is built.
type stage struct {
	*options
	dir  string
	arch string
	// executables are the files that were built, by the name of the program.
	executables map[string]string
}

// moduleOf is the directory of the module that has a program.
func moduleOf(program string) string {
	switch program {
	case "kubelot", "kubelot-up":
		return "cli"
	case "kubelot-all", "kubelot-compact":
		return "crew"
	case "kubelot-doze":
		return "daemon"
	case "kubelot-bus":
		return "bus/embed"
	default:
		return "services/" + program[len("kubelot-"):]
	}
}

// build compiles a program, once, and returns its file.
func (s *stage) build(ctx context.Context, program string) (string, error) {
	if file := s.executables[program]; file != "" {
		return file, nil
	}
	file := filepath.Join(s.dir, "bin", program)
	fmt.Printf("   %s for %s\n", program, s.arch)
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false",
		"-ldflags", "-s -w -buildid= -X kubelot.dev/daemon.version="+s.version, "-o", file, "./cmd/"+program)
	cmd.Dir = filepath.Join(s.root, moduleOf(program))
	// In the workspace, so that all executables have the same versions of libraries, which are those that were tested.
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+s.arch, "GOAMD64=v1", "GOARM64=v8.0",
		"GOFLAGS=", "GOEXPERIMENT=", "GOWORK="+filepath.Join(s.root, "go.work"))
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s for %s: %w\n%s", program, s.arch, err, out)
	}
	if s.executables == nil {
		s.executables = map[string]string{}
	}
	s.executables[program] = file
	return file, nil
}

// text writes a file into the stage and returns its path there.
func (s *stage) text(name string, content []byte) (string, error) {
	file := filepath.Join(s.dir, "files", name)
	err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, content, 0o644))
	if err != nil {
		return "", fmt.Errorf("write %s: %w", name, err)
	}
	return file, nil
}
