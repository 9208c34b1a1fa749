package main

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"debug/buildinfo"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/CycloneDX/cyclonedx-go"

	"kubelot.dev/deploy"
)

// archive is for machines without a package manager: the executables of kubelot install, nearly all daemons in one.
func (s *stage) archive(ctx context.Context) (err error) {
	daemons, err := deploy.Daemons()
	if err != nil {
		return err
	}
	top := "kubelot-" + s.version
	file, err := os.Create(filepath.Join(s.out, fmt.Sprintf("%s-linux-%s.tar.gz", top, s.arch)))
	if err != nil {
		return fmt.Errorf("write the archive: %w", err)
	}
	packed := gzip.NewWriter(file)
	w := tar.NewWriter(packed)
	defer func() { err = errors.Join(err, w.Close(), packed.Close(), file.Close()) }()
	for _, program := range []string{"kubelot-all", "kubelot-api", "kubelot-compact", "kubelot-doze", "kubelot-up"} {
		source, err := s.build(ctx, program)
		if err != nil {
			return err
		}
		content, err := os.ReadFile(source)
		if err != nil {
			return fmt.Errorf("read %s: %w", program, err)
		}
		header := &tar.Header{Name: top + "/" + program, Mode: 0o755, Size: int64(len(content)), ModTime: s.time}
		if err := w.WriteHeader(header); err != nil {
			return fmt.Errorf("write the archive: %w", err)
		}
		if _, err := w.Write(content); err != nil {
			return fmt.Errorf("write the archive: %w", err)
		}
	}
	names := []string{"kubelot"}
	for _, name := range daemons {
		if name != "api" {
			names = append(names, "kubelot-"+name)
		}
	}
	for _, name := range names {
		header := &tar.Header{
			Typeflag: tar.TypeSymlink, Name: top + "/" + name, Linkname: "kubelot-all", Mode: 0o777, ModTime: s.time,
		}
		if err := w.WriteHeader(header); err != nil {
			return fmt.Errorf("write the archive: %w", err)
		}
	}
	return nil
}

// billOfMaterials lists what the executables were linked from, as the executables say themselves.
func (s *stage) billOfMaterials() error {
	bom := cyclonedx.NewBOM()
	bom.Metadata = &cyclonedx.Metadata{
		Timestamp: s.time.Format("2006-01-02T15:04:05Z07:00"),
		Component: &cyclonedx.Component{
			BOMRef:  "kubelot",
			Type:    cyclonedx.ComponentTypeApplication,
			Name:    "kubelot",
			Version: s.version,
		},
	}
	seen := map[string]cyclonedx.Component{}
	var graph []cyclonedx.Dependency
	for program, file := range s.executables {
		info, err := buildinfo.ReadFile(file)
		if err != nil {
			return fmt.Errorf("find what %s is made of: %w", program, err)
		}
		hash, err := sum(file)
		if err != nil {
			return err
		}
		seen[program] = cyclonedx.Component{
			BOMRef: program, Type: cyclonedx.ComponentTypeApplication, Name: program, Version: s.version,
			Hashes: &[]cyclonedx.Hash{{Algorithm: cyclonedx.HashAlgoSHA256, Value: hash}},
		}
		needs := []string{library(seen, "std", strings.TrimPrefix(info.GoVersion, "go"))}
		for _, module := range info.Deps {
			if strings.HasPrefix(module.Path, "kubelot.dev/") {
				continue
			}
			if module.Replace != nil {
				module = module.Replace
			}
			needs = append(needs, library(seen, module.Path, module.Version))
		}
		slices.Sort(needs)
		graph = append(graph, cyclonedx.Dependency{Ref: program, Dependencies: &needs})
	}
	var components []cyclonedx.Component
	for _, component := range seen {
		components = append(components, component)
	}
	slices.SortFunc(components, func(a, b cyclonedx.Component) int { return strings.Compare(a.BOMRef, b.BOMRef) })
	slices.SortFunc(graph, func(a, b cyclonedx.Dependency) int { return strings.Compare(a.Ref, b.Ref) })
	bom.Components, bom.Dependencies = &components, &graph
	file, err := os.Create(filepath.Join(s.out, fmt.Sprintf("kubelot-%s-linux-%s.cdx.json", s.version, s.arch)))
	if err != nil {
		return fmt.Errorf("write the bill of materials: %w", err)
	}
	err = cyclonedx.NewBOMEncoder(file, cyclonedx.BOMFileFormatJSON).SetPretty(true).Encode(bom)
	return errors.Join(err, file.Close())
}

// library adds a module and returns its reference.
func library(seen map[string]cyclonedx.Component, path, version string) string {
	url := "pkg:golang/" + path + "@" + version
	seen[url] = cyclonedx.Component{
		BOMRef: url, PackageURL: url, Type: cyclonedx.ComponentTypeLibrary, Name: path, Version: version,
	}
	return url
}

// sums writes SHA256SUMS, as sha256sum -c reads it.
func sums(dir string) error {
	var text strings.Builder
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		hash, err := sum(path)
		fmt.Fprintf(&text, "%s  %s\n", hash, name)
		return err
	})
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "SHA256SUMS"), []byte(text.String()), 0o644)
	}
	if err != nil {
		return fmt.Errorf("write the sums: %w", err)
	}
	return nil
}

func sum(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("sum up: %w", err)
	}
	defer file.Close()
	hash := sha256.New()
	if _, err := io.Copy(hash, file); err != nil {
		return "", fmt.Errorf("sum up %s: %w", path, err)
	}
	return fmt.Sprintf("%x", hash.Sum(nil)), nil
}
