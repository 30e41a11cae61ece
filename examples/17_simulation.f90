! Training a surrogate inside a Fortran solver.   mpirun -n 2 ./17_simulation   (or more ranks)
! u_t + a . grad u = nu lap u, periodic, split in x over the two ranks of the solver's communicator. A network learns the
! change of a cell over 10 steps from its 5 x 5 neighbours, on random ones of a window of the newest samples.
! The solver traps floating-point exceptions (-ffpe-trap). It stops with 1 if the error at the end is above 0.02.
program simulation
  use mpi
  use, intrinsic :: iso_fortran_env, only: real64
  use tandem
  implicit none
  integer, parameter :: ranks = 2, n = 64, nx = n / ranks, ns = (nx - 4) * n
  real(real64), parameter :: pi = acos(-1d0), h = 1d0 / n, dt = 2d-4, nu = 4d-3, a(2) = [1d0, 0.6d0]
  real(real64) :: u(-1:nx+2, n), v(nx, n), before(nx, n), x(5, 5, ns), y(1, ns), p(1, ns), sums(2), first, last
  type(tandem_group_t) :: group
  type(tandem_model_t) :: model
  type(tandem_window_t) :: window
  type(tandem_report_t) :: report
  integer :: rank, size_, solver, color, ierr, step, k, i, j

  last = 0
  call mpi_init(ierr)
  call mpi_comm_rank(mpi_comm_world, rank, ierr)
  call mpi_comm_size(mpi_comm_world, size_, ierr)
  if (size_ < ranks) error stop 'needs two ranks'
  color = merge(0, mpi_undefined, rank < ranks)
  call mpi_comm_split(mpi_comm_world, color, rank, solver, ierr)
  if (solver /= mpi_comm_null) then
    call tandem_seed(1)
    call tandem_group(group, solver)
    call tandem_model(model, '{"inputs": [5, 5], "normalize": true, "layers": [{"type": "flatten"}, ' // &
      '{"type": "dense", "units": 48, "activation": "tanh"}, {"type": "dense", "units": 1}], ' // &
      '"optimizer": {"type": "adam", "learning_rate": 0.003}, "loss": "mean_squared_error"}', group)
    call tandem_window(window, model, capacity=20*ns, batch=64, seed=1)
    do j = 1, n
      do i = 1, nx
        u(i, j) = sin(2*pi*((rank*nx + i)*h + 2*j*h)) + 0.5d0*cos(2*pi*(3*(rank*nx + i)*h - j*h)) + 0.3d0*sin(10*pi*j*h)
      end do
    end do
    do step = 1, 150
      call halo()
      k = 0
      do j = 1, n
        do i = 3, nx - 2
          k = k + 1
          x(:, :, k) = u(i-2:i+2, modulo([j-3, j-2, j-1, j, j+1], n) + 1)
        end do
      end do
      before = u(1:nx, :)
      do i = 1, 10
        call advance()
      end do
      y(1, :) = reshape(u(3:nx-2, :) - before(3:nx-2, :), [ns])
      call tandem_predict(model, tandem_array(x), p)   ! before it has seen them
      sums = [sum((p - y)**2), sum(y**2)]
      call mpi_allreduce(mpi_in_place, sums, 2, mpi_double_precision, mpi_sum, solver, ierr)
      last = sqrt(sums(1) / sums(2))
      if (step == 1) first = last
      call tandem_observe(model, tandem_array(x), tandem_array(y))
      call tandem_push(window, tandem_array(x), tandem_array(y))
      call tandem_train_window(window, model, max_steps=10, report=report)
    end do
    if (rank == 0) then
      call tandem_save(model, 'surrogate')
      print '(a, f7.3, a, f7.3, a, i0, a)', 'relative error of the change before', first, ' after', last, &
        ', ', report%step, ' steps'
    end if
    call tandem_free(window)
    call tandem_free(model)
    call tandem_free(group)
    call mpi_comm_free(solver, ierr)
  end if
  call mpi_finalize(ierr)
  if (.not. last <= 0.02d0) error stop 1

contains

  subroutine halo()
    integer :: up, down, w
    real(real64) :: s(2, n), r(2, n)
    up = mod(rank + 1, ranks); down = mod(rank + ranks - 1, ranks); w = 2 * n
    s = u(nx-1:nx, :)
    call mpi_sendrecv(s, w, mpi_double_precision, up, 0, r, w, mpi_double_precision, down, 0, solver, mpi_status_ignore, ierr)
    u(-1:0, :) = r
    s = u(1:2, :)
    call mpi_sendrecv(s, w, mpi_double_precision, down, 1, r, w, mpi_double_precision, up, 1, solver, mpi_status_ignore, ierr)
    u(nx+1:nx+2, :) = r
  end subroutine

  subroutine advance()
    integer :: l, m, e, w
    call halo()
    do m = 1, n
      e = mod(m, n) + 1; w = mod(m + n - 2, n) + 1
      do l = 1, nx
        v(l, m) = u(l, m) + dt * (-a(1) * (u(l+1, m) - u(l-1, m)) / (2*h) - a(2) * (u(l, e) - u(l, w)) / (2*h) &
                  + nu * (u(l+1, m) + u(l-1, m) + u(l, e) + u(l, w) - 4*u(l, m)) / h**2)
      end do
    end do
    u(1:nx, :) = v
  end subroutine
end program
