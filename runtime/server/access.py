"""Who may call the server, and its certificate: read at the start, and again on SIGHUP."""

from __future__ import annotations

import logging

from ramet.runtime.api.errors import InvalidParameterError
from ramet.runtime.server.calls.api_keys import read_tenants
from ramet.runtime.server.calls.tenants import Tenants
from ramet.runtime.server.config import ServerConfig
from ramet.runtime.server.http.tls import load_certificate, open_tls

logger = logging.getLogger("ramet.server")


class Access:
    """The tenants with their keys, and the TLS context; None without a certificate.

    Raises:
        InvalidParameterError: a configured file can't be used.
    """

    def __init__(self, config: ServerConfig) -> None:
        self._config = config
        self.tenants = Tenants(read_tenants(config))
        self.tls = open_tls(config)

    @property
    def has_files(self) -> bool:
        """Whether there is anything to reload."""
        config = self._config
        return any((config.api_key_file, config.api_keys_file, config.ssl_certfile))

    def reload(self) -> None:
        """Reads all files again, for requests and connections to come; running ones go on.

        If one can't be used, the keys or the certificate stay as they were, and an error is logged.
        """
        try:
            tenants = read_tenants(self._config)
        except InvalidParameterError as error:
            logger.error("the API keys stay as they were: %s", error)
        else:
            self.tenants.replace(tenants)
            logger.info("API keys of %d tenants have been read", len(tenants))
        if self.tls is not None:
            try:
                load_certificate(self.tls, self._config)
            except InvalidParameterError as error:
                logger.error("the certificate stays as it was: %s", error)
            else:
                logger.info("the certificate has been read")
