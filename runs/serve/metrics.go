package serve

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/VictoriaMetrics/metrics"

	"drun/runs/serve/access"
	"drun/runs/transfer"
)

// answered notes the status of an answer.
type answered struct {
	http.ResponseWriter
	status int
}

func (a *answered) WriteHeader(status int) {
	if a.status == 0 {
		a.status = status
	}
	a.ResponseWriter.WriteHeader(status)
}

// Unwrap is for http.ResponseController.
func (a *answered) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// measure counts a request.
func (s *Server) measure(r *http.Request, status int, took time.Duration) {
	api := "pages"
	if method, is := strings.CutPrefix(r.URL.Path, transfer.Path); is {
		api = "transfer " + method[:min(len(method), 20)]
	} else if strings.HasPrefix(r.URL.Path, "/api/2.0/") {
		api = "mlflow"
	}
	if status == http.StatusNotFound || status == http.StatusMethodNotAllowed {
		api = "unknown" // as many as there are addresses would be too many
	}
	s.measured.GetOrCreateCounter(fmt.Sprintf(`drun_requests_total{api=%q,status="%d"}`, api, max(status, 200))).Inc()
	if !strings.HasSuffix(r.URL.Path, "/events") {
		s.measured.GetOrCreatePrometheusHistogram(fmt.Sprintf(`drun_request_seconds{api=%q}`, api)).Update(took.Seconds())
	}
}

// metrics answers Prometheus.
func (s *Server) metrics(w http.ResponseWriter, r *http.Request) {
	if err := access.Of(r.Context()).Must(access.Read, ""); err != nil {
		transfer.Fail(w, err)
		return
	}
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	s.measured.WritePrometheus(w)
	metrics.WriteProcessMetrics(w)
}
