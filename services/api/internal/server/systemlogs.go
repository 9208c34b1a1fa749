package server

import (
	"compress/gzip"
	"io"
	"io/fs"
	"net/http"
	"os"
	"syscall"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"kubelot.dev/services/api/internal/logquery"
)

const (
	// systemLogs is what /logs/ shows. Kubernetes has no setting for it.
	systemLogs = "/var/log"
	// journalctl reads the journal; it is found by PATH.
	journalctl = "journalctl"
)

// logFiles shows the machine's logs, and nothing that a link leads to outside of them.
func (s *Service) logFiles(mux *http.ServeMux) {
	k := s.env.Config.Kubelet
	if !*k.EnableSystemLogHandler {
		mux.HandleFunc("/logs/", disabled("logs endpoint is disabled."))
		return
	}
	query := k.EnableSystemLogQuery != nil && *k.EnableSystemLogQuery
	mux.Handle("GET /logs/", http.StripPrefix("/logs/", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		root, err := os.OpenRoot(s.systemLogs)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		defer func() { _ = root.Close() }()
		w = s.flusher(w, r)
		if query && s.serveQuery(w, r, logRoot{root}) {
			return
		}
		http.FileServerFS(logRoot{root}).ServeHTTP(w, r)
	})))
	if query {
		mux.HandleFunc("GET /logs", func(w http.ResponseWriter, r *http.Request) {
			if r.URL.RawQuery == "" {
				http.Redirect(w, r, "/logs/", http.StatusTemporaryRedirect)
				return
			}
			// Clients that ask a query this way follow no redirect.
			r.URL.Path = "/logs/"
			mux.ServeHTTP(w, r)
		})
	}
}

// logRoot is the directory of logs. It opens files and directories only: a pipe could be waited for without end.
type logRoot struct{ *os.Root }

// Open implements fs.FS.
func (l logRoot) Open(name string) (fs.File, error) {
	file, err := l.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() && !info.IsDir() {
		_ = file.Close() // nothing was written
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrPermission}
	}
	return file, nil
}

// serveQuery answers a query of the logs. done is false for a query of a file, which is left to be served as one.
func (s *Service) serveQuery(w http.ResponseWriter, r *http.Request, files fs.FS) (done bool) {
	q, errs := logquery.Parse(r.URL.Query())
	if len(errs) > 0 {
		return refuse(w, http.StatusBadRequest, errs)
	}
	if q == nil {
		return false
	}
	if r.URL.Path != "" && r.URL.Path != "/" {
		http.Error(w, "path not allowed in query mode", http.StatusNotAcceptable)
		return true
	}
	if errs := q.Validate(files); len(errs) > 0 {
		return refuse(w, http.StatusNotAcceptable, errs)
	}
	if file := q.File(); file != "" {
		r.URL.Path = file
		return false
	}
	w.Header().Set("Content-Type", "text/plain;charset=UTF-8")
	var out io.Writer = w
	if r.Header.Get("Accept-Encoding") == "gzip" {
		w.Header().Set("Content-Encoding", "gzip")
		zip := gzip.NewWriter(w)
		// A client that went away is nobody to tell.
		defer func() { _ = zip.Close() }()
		out = zip
	}
	logquery.Journal{Program: s.journalctl, Files: files}.Copy(r.Context(), out, q)
	return true
}

// refuse answers with the errors, and returns true.
func refuse(w http.ResponseWriter, code int, errs field.ErrorList) bool {
	http.Error(w, errs.ToAggregate().Error(), code)
	return true
}
